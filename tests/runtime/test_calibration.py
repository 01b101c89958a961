import json
from pathlib import Path

import pytest

from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.runtime.calibration import BUDGET_S, CohortSizes, candidates, fastest, measure

SPEC, OTHER = ModelSpec.make("toy", width=3), ModelSpec.make("toy", width=4)


class Clock:
    """Time that passes only while something trains: ``per_step`` seconds and ``per_client`` for each client."""

    def __init__(self, per_step: float, per_client: float) -> None:
        self.now, self.per_step, self.per_client = 0.0, per_step, per_client
        self.trained: list[tuple[int, int]] = []

    def __call__(self) -> float:
        return self.now

    def train(self, size: int, steps: int) -> None:
        self.trained.append((size, steps))
        self.now += steps * (self.per_step + self.per_client * size)


def test_overhead_per_step_speaks_for_cohorts() -> None:
    clock = Clock(0.003, 0.004)
    seconds = measure([1, 4, 8, 16], clock.train, clock)
    assert seconds[1] == pytest.approx(0.007)
    assert seconds[8] == pytest.approx(0.004 + 0.003 / 8)
    assert fastest(seconds) == 16


def test_a_smaller_cohort_is_taken_where_it_is_about_as_fast() -> None:
    assert fastest({1: 1.0, 4: 0.5, 8: 0.49, 16: 0.495}) == 4
    assert fastest({1: 1.0, 4: 1.2}) == 1


@pytest.mark.parametrize("per_client", [0.01, 0.1, 0.5])
def test_the_budget_holds(per_client: float) -> None:
    clock = Clock(0.0, per_client)
    measure([1, 4, 8, 16], clock.train, clock)
    assert clock.now <= max(BUDGET_S, 5 * per_client)
    assert clock.trained[0] == (1, 1)


def test_a_choice_is_kept_for_later_jobs_and_depends_on_what_decides_it(tmp_path: Path) -> None:
    file = tmp_path / "cohorts.json"
    one = CohortSizes({"device": "a"}, file)
    assert one.size(SPEC) is None
    assert one.choose(SPEC, {1: 2.0, 4: 1.0}) == 4
    assert one.size(SPEC) == 4 and one.size(OTHER) is None
    assert CohortSizes({"device": "a"}, file).size(SPEC) == 4
    assert CohortSizes({"device": "b"}, file).size(SPEC) is None


def test_a_spoilt_file_is_measured_anew(tmp_path: Path) -> None:
    file = tmp_path / "cohorts.json"
    for content in ("", "[]", "{", json.dumps({CohortSizes({}, file).key(SPEC): "four"})):
        file.write_text(content, encoding="utf-8")
        sizes = CohortSizes({}, file)
        assert sizes.size(SPEC) is None
        sizes.choose(SPEC, {1: 1.0})
        assert CohortSizes({}, file).size(SPEC) == 1


def test_no_cohort_is_larger_than_a_round() -> None:
    assert candidates("cpu", 5, 1000) == [1, 4]
    assert candidates("cuda:1", 100, 1000) == [1, 8, 32]


def test_large_models_do_not_fill_the_memory_many_times() -> None:
    assert candidates("cpu", 100, 26_000_000) == [1]
    assert candidates("cpu", 100, 5_000_000) == [1, 4, 8]
