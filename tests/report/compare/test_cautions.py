"""What the sentences below a comparison say of its rows: other data, other seeds, jobs that did not finish."""

import os
from pathlib import Path

import numpy as np
import pytest
from written_job import write_job

from fedscale_ext.report.compare.arm_labels import settings_table
from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.compare.comparison_table import comma_separated, table_rows, terminal_table
from fedscale_ext.report.compare.competing import best
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job


def test_the_caution_names_which_arm_sets_aside_how_many_samples(tmp_path: Path):
    first = {"name": "x", "generated": False, "digest": "1"}
    other = {**first, "digest": "0"}
    cases = [
        ("moss", first, {"public_samples": 1200}),
        ("fedavg", other, {"public_samples": 0}),
        ("feddf", other, {"public_samples": 50, "public_dir": "elsewhere"}),  # takes nothing from clients
    ]
    jobs = [load_job(write_job(tmp_path / name, method=name, data=data, settings=keys)) for name, data, keys in cases]
    (caution,) = cautions(arms_of(jobs))
    assert caution.endswith(
        "They set aside different numbers of training samples as public data: moss 1,200, fedavg none, feddf none."
    )
    (caution,) = cautions(arms_of([jobs[1], load_job(write_job(tmp_path / "plain", method="heterofl", data=first))]))
    assert caution.endswith("The names of x (1) and x (2) are the same, samples or clients are not: files differ.")
    named = load_job(write_job(tmp_path / "named", method="heterofl", data={**first, "name": "y"}))
    assert cautions(arms_of([jobs[1], named]))[0].endswith("within the same data only.")


def test_seeds_on_other_contents_of_a_file_are_another_arm_and_that_is_said(tmp_path: Path):
    def job(name: str, seed: int, digest: str | None = None, file: str = "boards.csv"):
        head = {} if digest is None else {"named_files": {"device_conf_file": {file: digest}}}
        return load_job(write_job(tmp_path / name, seed=seed, settings={"device_conf_file": file}, **head))

    one, two, other = job("a", 1, "11"), job("b", 2, "11"), job("c", 3, "22")
    assert cautions(arms_of([one, two])) == []
    arms = arms_of([one, other, two])
    assert [(arm.label, arm.seeds) for arm in arms] == [("a", [1, 2]), ("c", [3])]
    assert cautions(arms) == [
        "These jobs ran with different contents of device_conf_file boards.csv: jobs with the same contents share a "
        "row.",
        "These jobs ran on different devices (a: boards.csv (11); c: boards.csv (22)): costs and virtual time do not "
        "compare, and the best are marked among the same devices only.",
        "The rows have different seeds: differences between rows are also differences between seeds.",
    ]
    assert settings_table(arms) == {"device_conf_file": ["boards.csv (11)", "boards.csv (22)"]}
    elsewhere = job("d", 4, "22", file="others.csv")  # the setting itself tells them apart
    assert cautions(arms_of([one, elsewhere]))[0].startswith("These jobs ran on different devices (")
    unknown = job("e", 5)  # of a release that wrote no digests
    assert [arm.seeds for arm in arms_of([one, unknown, two])] == [[1, 5, 2]]


def test_the_settings_that_make_data_differ_are_named(tmp_path: Path):
    def job(name: str, digest: str, **settings: object):
        data = {"name": "mine", "generated": False, "digest": digest}
        return load_job(write_job(tmp_path / name, settings=settings, data=data))

    one = job("a", "1", sample_shape=None)
    other = job("b", "2", sample_shape=[1, 14, 14])
    assert "samples or clients are not: sample_shape differ." in cautions(arms_of([one, other]))[0]
    assert "samples or clients are not: files differ." in cautions(arms_of([one, job("c", "3", sample_shape=None)]))[0]


@pytest.mark.parametrize(
    ("rounds", "state"),
    [
        (20, "round 20 of 40"),
        (24, "round 24 of 48, tested after round 20"),
        (1, "round 1 of 2"),
    ],
)
def test_an_unfinished_job_says_after_which_round_it_was_tested(tmp_path: Path, rounds: int, state: str):
    job = load_job(write_job(tmp_path / "early", finished=False, rounds=rounds))
    (arm,) = arms_of([job])
    assert arm.state == state and arm.progress == state.partition(",")[0]
    assert cautions([arm]) == [f"Not finished: early ({state})."]
    assert terminal_table([arm], table_rows([arm]))[1][0][0] == f"fedtrans ({state})"


def test_a_seed_that_is_there_twice_counts_once_and_that_is_said(tmp_path: Path):
    def job(name: str, seed: int, shift: float = 0.0):
        return load_job(write_job(tmp_path / name, seed=seed, shift=shift))

    one, two, again = job("a", 1, 0.1), job("b", 2), job("c", 1, 0.1)
    (arm,) = arms_of([one, two, again])
    assert arm.seeds == [1, 2] and arm.std("accuracy") == pytest.approx(0.1 / np.sqrt(2))
    assert cautions([arm]) == ["c is left out of fedtrans: it repeats a (seed 1), with equal results."]
    assert len(comma_separated([arm]).splitlines()) == 3
    newer = job("d", 1, 0.2)
    os.utime(one.folder / "header.json", ns=(1, 1))
    (arm,) = arms_of([one, two, newer])
    assert [job.name for job in arm.jobs] == ["d", "b"]
    assert cautions([arm]) == [
        "a is left out of fedtrans: d has the same settings and seed 1 and other results, and is newer; versions of "
        "the code may differ."
    ]


def test_a_seed_that_did_not_finish_is_not_averaged_with_those_that_did(tmp_path: Path):
    done = [load_job(write_job(tmp_path / str(seed), seed=seed, rounds=20)) for seed in (0, 1)]
    folder = write_job(tmp_path / "early", seed=2, rounds=10, finished=False)
    early = load_job(folder, "round 11: every client failed, training diverged: the loss is not finite")
    rival = load_job(write_job(tmp_path / "rival", method="fedavg", shift=-0.1))
    arms = arms_of([*done, early, rival])
    arm = arms[0]
    assert (arm.seeds, arm.state, [job.name for job in arm.unfinished]) == ([0, 1], "", ["early"])
    assert best(arms, BY_KEY["accuracy"]) == set()  # the better one diverged with a seed
    assert cautions(arms) == [
        "Not marked as the best in any column: fedtrans (its training diverged).",
        "Not finished, and not in the figures of its row: early of fedtrans (seed 2, round 10 of 20; round 11: every "
        "client failed, training diverged: the loss is not finite).",
        "The rows have different seeds: differences between rows are also differences between seeds.",
    ]
    assert [row[:2] for row in terminal_table(arms, table_rows(arms))[1]][:2] == [
        ["fedtrans", "2 of 3"],
        ["fedavg", "1"],
    ]
    assert comma_separated(arms).splitlines()[3].split(",")[:5] == ["fedtrans", "early", "2", "femnist", "no"]
    (alone,) = arms_of([early])
    assert alone.jobs == [early] and alone.state == "round 10 of 20"
    assert cautions([alone])[-1].startswith("Not finished: early (round 10 of 20; round 11: every client failed, ")


def test_data_of_one_name_are_told_apart_beside_a_third_one(tmp_path: Path):
    def job(name: str, method: str, data: str, digest: str, clients: int = 62, classes: int = 10):
        head = {"name": data, "generated": False, "digest": digest}
        job = load_job(write_job(tmp_path / name, method=method, data=head, clients=False))
        assert job.evaluation is not None and isinstance(job.header, dict)
        job.header["num_clients"] = clients
        for model in job.summary["models"]:
            model["spec"]["num_classes"] = classes
        return job

    jobs = [
        job("a", "fedavg", "sg", "1"),
        job("b", "heterofl", "digits", "2", 60, 11),
        job("c", "heterofl", "digits", "3"),
        job("d", "fedprox", "digits", "3"),
    ]
    arms = arms_of(jobs)
    assert [arm.data for arm in arms] == ["sg", "digits (1)", "digits (2)", "digits (2)"]
    assert [arm.label for arm in arms] == ["fedavg", "heterofl, digits (1)", "heterofl, digits (2)", "fedprox"]
    assert cautions(arms)[0].endswith(
        "The names of digits (1) (60 clients, 11 classes) and digits (2) (62 clients, 10 classes) are the same, "
        "samples or clients are not: files differ."
    )
