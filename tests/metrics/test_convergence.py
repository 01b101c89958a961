"""The stop rule of FedTrans's appendix, on accuracies by hand."""

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.metrics.convergence import converged_round, stalled


def test_accuracy_stalls_where_nothing_since_rises_above_what_was_before() -> None:
    seen = [(10, 0.5), (20, 0.505), (30, 0.52)]
    assert not stalled(seen[:1], 10, 0.01, 10)  # nothing before
    assert stalled(seen[:2], 20, 0.01, 10)
    assert stalled([(10, 0.5), (20, 0.51)], 20, 0.01, 10)  # by no more than
    assert not stalled(seen, 30, 0.01, 10)
    assert not stalled(seen, 31, 0.016, 12)  # round 20 counts as since: it is less than 12 rounds ago
    assert stalled(seen, 31, 0.016, 11)
    assert not stalled(seen, 41, 0.5, 10)  # nothing was tested since


def test_a_peak_before_counts_and_a_fall_does_not() -> None:
    assert stalled([(1, 0.8), (2, 0.3), (12, 0.805)], 12, 0.01, 10)
    assert not stalled([(1, 0.3), (2, 0.8), (12, 0.5)], 12, 0.01, 11)


@pytest.mark.parametrize(("unit", "patience", "expected"), [
    ("rounds", 10, 40), ("rounds", 20, 50), ("evaluations", 1, 40), ("evaluations", 2, 50), ("evaluations", 10, None),
])  # fmt: skip
def test_the_first_round_at_which_the_rule_holds(unit: str, patience: int, expected: int | None) -> None:
    seen = [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.305), (50, 0.305), (60, 0.9)]
    assert converged_round(seen, 0.01, patience, unit) == expected


def test_evaluations_of_nobody_are_passed_over() -> None:
    nan = float("nan")
    assert converged_round([(10, 0.1), (20, nan), (30, 0.1)], 0.01, 1, "evaluations") == 30
    assert converged_round([(10, nan), (20, nan)], 0.01, 1, "rounds") is None
    assert converged_round([], 0.01, 1, "rounds") is None


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0.1, 0.2, 0.3, 0.301, float("nan")])), max_size=30),
    st.sampled_from([0.0, 0.001, 0.1]),
    st.integers(1, 12),
    st.sampled_from(["rounds", "evaluations"]),
)
def test_it_is_the_first_evaluation_at_which_accuracy_has_stalled(
    steps: list[tuple[int, float]], gain: float, patience: int, unit: str
) -> None:
    rounds = accumulate(step for step, _ in steps)
    seen = [(round, value) for round, (_, value) in zip(rounds, steps, strict=True)]
    tested = [(round, value) for round, value in seen if value == value]
    counted = [(number, value) for number, (_, value) in enumerate(tested)] if unit == "evaluations" else tested
    at = [round for (round, _), (now, _) in zip(tested, counted, strict=True) if stalled(counted, now, gain, patience)]
    assert converged_round(seen, gain, patience, unit) == (at[0] if at else None)


def test_each_evaluation_is_compared_a_few_times_however_many_there_are() -> None:
    class Counted(float):
        def __le__(self, other: float) -> bool:
            compared.append(1)
            return float(self) <= other

        __gt__ = __ge__ = __lt__ = __le__  # type: ignore[assignment]

    compared: list[int] = []
    seen = [(round, Counted(round / 300)) for round in range(1, 301)]
    converged_round(seen, 0.001, 50, "rounds")
    assert len(compared) < 10 * len(seen)
