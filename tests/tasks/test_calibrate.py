from pathlib import Path

import pytest

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.tasks.calibrate import BUDGET_S, CohortSizes, candidates, fastest, fitting, measure

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
    seconds = measure([1, 4, 8, 16], clock.train, BUDGET_S["cpu"], clock)
    assert seconds[1] == pytest.approx(0.007)
    assert seconds[8] == pytest.approx(0.004 + 0.003 / 8)
    assert fastest(seconds) == 16


def test_a_smaller_cohort_is_taken_where_it_is_about_as_fast() -> None:
    assert fastest({1: 1.0, 4: 0.5, 8: 0.49, 16: 0.495}) == 4
    assert fastest({1: 1.0, 4: 1.2}) == 1


@pytest.mark.parametrize("per_client", [0.01, 0.1, 0.5])
def test_the_budget_holds(per_client: float) -> None:
    clock = Clock(0.0, per_client)
    measure([1, 4, 8, 16], clock.train, BUDGET_S["cpu"], clock)
    assert clock.now <= max(BUDGET_S["cpu"], 5 * per_client)
    assert clock.trained[0] == (1, 1)


def test_a_choice_is_kept_for_later_jobs_and_depends_on_what_decides_it(tmp_path: Path) -> None:
    one = CohortSizes({"device": "a"}, tmp_path)
    assert one.size(SPEC) is None
    assert one.choose(SPEC, {1: 2.0, 4: 1.0}) == 4
    assert one.size(SPEC) == 4 and one.size(OTHER) is None
    assert CohortSizes({"device": "a"}, tmp_path).size(SPEC) == 4
    assert CohortSizes({"device": "b"}, tmp_path).size(SPEC) is None


def test_two_jobs_that_measure_at_once_choose_the_same(tmp_path: Path) -> None:
    one, other = CohortSizes({}, tmp_path), CohortSizes({}, tmp_path)
    assert one.size(SPEC) is None and other.size(SPEC) is None
    assert one.choose(SPEC, {1: 1.0, 4: 2.0}) == 1
    assert other.choose(SPEC, {1: 2.0, 4: 1.0}) == 1


@pytest.mark.parametrize("content", ["", "[]", "{", '{"size": "four"}', '{"size": 0}', '{"size": null}'])
def test_a_spoilt_file_is_measured_anew(tmp_path: Path, content: str) -> None:
    (tmp_path / f"{CohortSizes({}, tmp_path).key(SPEC)}.json").write_text(content, encoding="utf-8")
    sizes = CohortSizes({}, tmp_path)
    assert sizes.size(SPEC) is None
    sizes.choose(SPEC, {1: 1.0})
    assert CohortSizes({}, tmp_path).size(SPEC) == 1


def test_a_cache_that_cannot_be_written_does_not_end_the_job(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be", encoding="utf-8")
    sizes = CohortSizes({}, tmp_path / "cache")
    assert sizes.choose(SPEC, {1: 2.0, 4: 1.0}) == 4
    assert sizes.size(SPEC) == 4


def test_no_cohort_is_larger_than_a_round() -> None:
    assert candidates("cpu", 5) == [1, 4]
    assert candidates("cuda:1", 100) == [1, 8, 32]


def test_large_models_do_not_fill_the_memory_many_times() -> None:
    assert fitting([1, 4, 8, 16], "cpu", 26_000_000) == [1]
    assert fitting([1, 4, 8, 16], "cpu", 5_000_000) == [1, 4, 8]
