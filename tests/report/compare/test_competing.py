"""Which rows of a comparison compete in a column, and which of them is marked as the best."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_job import write_job

from fedscale_ext.report.compare import competing
from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.columns import BY_KEY, FIGURES
from fedscale_ext.report.compare.competing import best, conditions
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job


def test_costs_compete_among_equal_overcommitment_only(tmp_path: Path):
    """Clients that are too slow to count cost nothing, so that more of them would win the costs."""
    jobs = [
        load_job(write_job(tmp_path / str(value), shift=value / 100, settings={"overcommitment": value}))
        for value in (1.0, 2.0)
    ]
    arms = arms_of(jobs)
    assert len({conditions(arm, BY_KEY["network"]) for arm in arms}) == 2
    assert len({conditions(arm, BY_KEY["accuracy"]) for arm in arms}) == 1
    assert any(note.startswith("These jobs have different overcommitment.") for note in cautions(arms))
    assert not any("overcommitment" in note for note in cautions(arms_of(jobs[:1])))


def test_costs_of_rows_with_refused_updates_compete_apart(tmp_path: Path):
    """What a client trained and sent is not counted where its update was refused, so that refusals would win."""
    clean, refused = (
        load_job(write_job(tmp_path / name, settings={"learning_rate": rate}, failed=failed))
        for name, rate, failed in (("a", 0.1, None), ("b", 0.2, {"its norm is too large": 21}))
    )
    arms = arms_of([clean, refused])
    (note,) = [note for note in cautions(arms) if note.startswith("Updates failed")]
    assert f"{arms[1].label} {refused.summary['clients']['failed_total']}." in note and arms[0].label not in note
    assert len({conditions(arm, BY_KEY["macs"]) for arm in arms}) == 2
    assert len({conditions(arm, BY_KEY["served"]) for arm in arms}) == 1
    assert not any(note.startswith("Updates failed") for note in cautions(arms[1:]))


def test_generated_data_compete_apart_from_real_ones(tmp_path: Path):
    arms = arms_of([load_job(write_job(tmp_path / str(generated), generated=generated)) for generated in (False, True)])
    assert len({conditions(arm, BY_KEY["accuracy"])[1] for arm in arms}) == 2


COSTS = ("macs", "network", "time")


def test_a_job_that_stopped_early_competes_in_no_cost_with_one_that_did_all_rounds(tmp_path: Path):
    def job(name: str, rounds: int, **settings: object):
        return load_job(write_job(tmp_path / name, method=name, rounds=rounds, settings={"rounds": 10, **settings}))

    rule = {"stop_patience": 2, "stop_unit": "rounds"}
    full, short = job("fedavg", 10), job("heterofl", 3, stop_gain=0.01, **rule)
    short.summary["stopped"] = "accuracy rose by no more than 0.01 over 2 rounds"
    arms = arms_of([full, short])
    assert [best(arms, BY_KEY[key]) for key in COSTS] == [set(), set(), set()]
    assert cautions(arms) == [
        "Stopped early: heterofl after round 3 of 10 (accuracy rose by no more than 0.01 over 2 rounds). MACs, network "
        "and virtual time are marked among jobs that did equally many rounds only."
    ]
    short.summary["cost"]["training_macs"] /= 2
    both = arms_of([short, job("fjord", 3, stop_gain=0.01, **rule), full])
    assert best(both, BY_KEY["macs"]) == {0}  # among those of three rounds


def test_jobs_on_other_devices_compete_in_no_cost_and_that_is_said(tmp_path: Path):
    def job(method: str, file: str, digest: str | None = None):
        head = {} if digest is None else {"named_files": {"device_conf_file": {file: digest}}}
        name, settings = f"{method}-{file}-{digest}", {"device_conf_file": file}
        return load_job(write_job(tmp_path / name, method=method, settings=settings, **head))

    one, other = job("fedavg", "a.csv", "11"), job("heterofl", "b.csv", "22")
    one.summary["cost"]["training_macs"] /= 2
    arms = arms_of([one, other])
    assert best(arms, BY_KEY["macs"]) == set()
    assert cautions(arms) == [
        "These jobs ran on different devices (fedavg: a.csv; heterofl: b.csv): costs and virtual time do not compare, "
        "and the best are marked among the same devices only."
    ]
    same = arms_of([one, job("heterofl", "copy.csv", "11")])
    assert best(same, BY_KEY["macs"]) == {0} and cautions(same) == []


def test_the_best_is_marked_in_the_figures_direction_among_jobs_on_the_same_data(arms, tmp_path: Path):
    assert best(arms, BY_KEY["accuracy"]) == {0}
    assert best(arms, BY_KEY["macs"]) == set()  # all alike: nobody is best
    other = load_job(write_job(tmp_path / "other", shift=0.2, data={"name": "x", "generated": False, "digest": "0"}))
    both = arms_of([arms[0].jobs[0], arms[1].jobs[0], other])
    assert best(both, BY_KEY["accuracy"]) == {0}  # the other has no rival on its data
    set_aside = {**arms[0].jobs[0].header["data"], "digest": "0"}  # of the same name, with other samples
    other = load_job(write_job(tmp_path / "aside", shift=0.2, data=set_aside))
    assert best(arms_of([arms[0].jobs[0], arms[1].jobs[0], other]), BY_KEY["accuracy"]) == {0}


@pytest.mark.parametrize("key", [figure.key for figure in FIGURES if figure.more_is_better is not None])
def test_less_is_better_unless_more_is(arms, key: str):
    figure, values = BY_KEY[key], [0.3, 0.1, 9.0 if BY_KEY[key].more_is_better else 0.0]
    for arm, value in zip(arms, values, strict=True):  # the last has not ended: it competes in nothing
        arm.figures[key] = [value]
    assert best(arms, figure) == {0 if figure.more_is_better else 1}


@dataclass(frozen=True)
class _Row:
    """As much of an arm as a mark needs: one mean."""

    value: float
    state: str = ""
    disqualified: str | None = None

    def mean(self, key: str) -> float:
        return self.value


def best_of(values: list[float], key: str) -> set[int]:
    """Indices of the best of rows that compete with each other."""
    rows: Any = [_Row(value) for value in values]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(competing, "conditions", lambda arm, figure: ())
        return best(rows, BY_KEY[key])


_NOISE = st.floats(-1e-12, 1e-12)


@pytest.mark.parametrize("key", ["accuracy", "macs"])
@given(
    top=st.integers(1, 50),
    values=st.lists(st.tuples(st.integers(1, 50), _NOISE), min_size=2, max_size=5),
)
def test_rounding_noise_changes_no_mark(key: str, top: int, values: list[tuple[int, float]]):
    exact = [number / 6 * top for number, _ in values]
    noisy = [number / 6 * top * (1 + noise) for number, noise in values]
    assert best_of(noisy, key) == best_of(exact, key)


@pytest.mark.parametrize(
    ("values", "marked"),
    [
        ([1 / 6, 0.16666666666666663, 1 / 6], set()),  # all alike
        ([1 / 6, 0.16666666666666663, 0.1], {0, 1}),
        ([0.0, 5e-17, 0.0], set()),  # an IQR of quantiles
        ([0.5, 0.5 + 1e-6], {1}),  # a client more of a million
    ],
)
def test_values_that_differ_in_rounding_alone_share_the_mark(values: list[float], marked: set[int]):
    assert best_of(values, "accuracy") == marked


def test_tests_with_and_without_the_mask_do_not_compete(tmp_path: Path):
    jobs = []
    for value in (True, False):
        folder = write_job(tmp_path / str(value), shift=0.1 * value, settings={"mask_test": value})
        if value:
            summary = json.loads((folder / "summary.json").read_text())
            summary["accuracy"]["unmasked"] = {"mean": 0.3579, "per_client": []}
            (folder / "summary.json").write_text(json.dumps(summary))
        jobs.append(load_job(folder))
    arms = arms_of(jobs)
    assert best(arms, BY_KEY["accuracy"]) == set()
    for key in ("accuracy", "tuned", "samples", "iqr", "worst_tenth"):
        assert len({conditions(arm, BY_KEY[key]) for arm in arms}) == 2
    for key in ("global", "on_all", "macs", "network"):  # no test of these is masked
        assert len({conditions(arm, BY_KEY[key]) for arm in arms}) == 1
    assert cautions(arms) == [
        "Tests of fedtrans, mask_test True mask the logits of classes that a client lacks, those of the other rows do "
        "not: their accuracies do not compare, and the best are marked within the same kind of test only. Without the "
        "mask: fedtrans, mask_test True 35.79 %."
    ]
    alone = {arm.masked: cautions([arm]) for arm in arms}
    assert alone[False] == []
    assert alone[True] == [
        "Tests mask the logits of classes that a client lacks (mask_test). Without the mask: fedtrans, mask_test True "
        "35.79 %."
    ]
