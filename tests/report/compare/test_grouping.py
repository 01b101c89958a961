"""Which jobs are one arm."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest
from written_job import write_job

from fedscale_ext.report.compare.arm_labels import differences, settings_table
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.compare.competing import best
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job import loading
from fedscale_ext.report.job.loading import DEVICE_FILES, LoadedJob, load_job


def test_jobs_that_differ_in_their_seed_are_one_arm(arms):
    assert [(arm.label, arm.seeds) for arm in arms] == [("fedtrans", [0, 1]), ("heterofl", [0]), ("fedavg", [0])]


def test_one_file_or_data_folder_at_two_places_is_one_setting(tmp_path: Path):
    def job(name: str, seed: int, folder: str, digest: str = "11", types: str = "33"):
        keys = {"device_conf_file": f"{folder}/boards.csv", "data_dir": folder, "method": "fedmd"}
        files = {"device_conf_file": {f"{folder}/boards.csv": digest}, "fedmd.types": {f"{folder}/t.json": types}}
        head = {"named_files": files, "params": {"types": ["lenet_6k", f"{folder}/t.json"]}}
        return load_job(write_job(tmp_path / name, method="fedmd", seed=seed, settings=keys, **head))

    one, two = job("a", 1, "here"), job("b", 2, "there")
    (arm,) = arms_of([one, two])
    assert arm.seeds == [1, 2] and cautions([arm]) == [] and differences([one, two]) == {}
    assert len(arms_of([one, job("c", 2, "there", types="44")])) == 2
    assert len(arms_of([one, job("d", 2, "there", digest="22")])) == 2
    seen_before = load_job(write_job(tmp_path / "old", method="fedmd", seed=3, settings={"data_dir": "here"}))
    assert len(arms_of([one, seen_before])) == 2


def test_jobs_of_different_length_are_two_arms_and_that_is_said(tmp_path: Path):
    short, long, again = (load_job(write_job(tmp_path / name, job_name=name, seed=1, rounds=rounds))
                          for name, rounds in (("a", 3), ("b", 10), ("c", 10)))  # fmt: skip
    assert cautions(arms_of([long])) == []
    two = arms_of([short, long])
    assert [arm.label for arm in two] == ["fedtrans, rounds 3", "fedtrans, rounds 10"]
    assert settings_table(two) == {"rounds": ["3", "10"]}
    rival = load_job(write_job(tmp_path / "rival", job_name="rival", seed=1, rounds=10, shift=-0.1, method="heterofl"))
    better = load_job(write_job(tmp_path / "better", job_name="better", seed=1, rounds=3, shift=0.3))
    three = arms_of([better, long, rival])
    assert three[0].mean("accuracy") > three[1].mean("accuracy")
    assert best(three, BY_KEY["accuracy"]) == {1}  # the short one is better, and competes not
    assert [sentence[:58] for sentence in cautions(two)] == [
        "These jobs have different numbers of rounds (3, 10): what "
    ]
    assert cautions(arms_of([long, again])) == ["c is left out of fedtrans: it repeats b (seed 1), with equal results."]


STOP_KEYS = [("stop_gain", 0.01), ("stop_patience", 3), ("stop_unit", "evaluations"), ("min_updates", 2)]


@pytest.mark.parametrize(("key", "value"), STOP_KEYS)
def test_jobs_that_may_end_elsewhere_are_two_arms_and_that_is_said(tmp_path: Path, key: str, value: object):
    base = {"stop_gain": 0.5, "stop_patience": 10, "stop_unit": "rounds", "min_updates": None}
    one = load_job(write_job(tmp_path / "a", seed=0, settings=base))
    other = load_job(write_job(tmp_path / "b", seed=1, settings={**base, key: value}))
    assert [arm.seeds for arm in arms_of([one, other])] == [[0], [1]]
    table = settings_table(arms_of([one, other]))
    assert list(table) == [key] and table[key][1] == str(value)


UNREAD_AND_READ = [
    ("capacity_spread", [8, 16], {"capacity_rule": "deadline"}, {"capacity_rule": "computation"}),
    ("stop_patience", [3, 10], {"stop_gain": None, "stop_unit": "rounds"}, {"stop_gain": 0.5, "stop_unit": "rounds"}),
    ("round_threshold", [30, 60], {"sample_mode": "random"}, {"sample_mode": "oort"}),
    ("own_classes", [True, False], {"method": "heterofl"}, {"method": "heterofl", "heterofl.mask": False}),
    ("clip_norm", [1.0, 2.0], {"method": "heterofl", "heterofl.clip_norm": 5.0}, {"method": "heterofl"}),
]


@pytest.mark.parametrize(("key", "values", "unread", "read"), UNREAD_AND_READ)
def test_jobs_that_differ_in_a_key_that_neither_reads_are_one_arm(
    tmp_path: Path, key: str, values: list[object], unread: dict[str, object], read: dict[str, object]
):
    def arms(name: str, base: dict[str, Any]) -> list[Arm]:
        method = str(base.get("method", "fedtrans"))
        params = {"clip_norm": 5.0} if method == "heterofl" else {}  # a default is no reason
        folders = [
            write_job(
                tmp_path / f"{name}{seed}", seed=seed, method=method, settings={**base, key: value}, params=params
            )
            for seed, value in enumerate(values)
        ]
        return arms_of([load_job(folder) for folder in folders])

    assert [arm.seeds for arm in arms("unread", unread)] == [[0, 1]]
    assert [arm.seeds for arm in arms("read", read)] == [[0], [1]]


def test_an_earlier_releases_job_has_the_default_of_a_key_that_it_lacks(tmp_path: Path):
    old = load_job(write_job(tmp_path / "a", seed=0))
    new = load_job(write_job(tmp_path / "b", seed=1, settings={"stop_gain": None, "stop_patience": 10, "data_seed": 1}))
    assert [arm.seeds for arm in arms_of([old, new])] == [[0, 1]]


def test_jobs_that_differ_in_what_a_hyperparameter_switches_off_are_one_arm(tmp_path: Path):
    def jobs(self_kd: bool) -> list[LoadedJob]:
        written = (
            write_job(tmp_path / f"{self_kd}-{gamma}", method="scalefl", seed=seed,
                      params={"self_kd": self_kd, "gamma": gamma})
            for seed, gamma in ((0, 0.1), (1, 0.2))
        )  # fmt: skip
        return [load_job(each) for each in written]

    off, on = jobs(self_kd=False), jobs(self_kd=True)
    assert len(arms_of(off)) == 1 and not differences(off)
    assert len(arms_of(on)) == 2 and "scalefl.gamma" in differences(on)
    assert "scalefl.gamma" in differences([off[0], on[1]])  # which one of them reads


def grouped_in_pairs(jobs: list[LoadedJob]) -> list[list[LoadedJob]]:
    """The definition: a job joins the first arm with none of whose jobs it differs."""
    groups: list[list[LoadedJob]] = []
    for job in jobs:
        for group in groups:
            if all(job.data_key == other.data_key and not differences([job, other]) for other in group):
                group.append(job)
                break
        else:
            groups.append([job])
    return groups


CHOICES: list[dict[str, list[Any]]] = [
    {"stop_gain": [None, 0.5], "stop_patience": [3, 10, 100], "device_conf_file": ["a.json", "b.json"]},
    {"sample_mode": ["random", "oort"], "clip_bound": [0.8, 0.9], "eval_interval": [1, 1.0, 2]},
    {
        "heterofl.clip_norm": [5.0],
        "clip_norm": [1.0, 2.0],
        "heterofl.mask": [True, False],
        "own_classes": [True, False],
    },
]


@pytest.mark.parametrize("choices", CHOICES)
@pytest.mark.parametrize("draw", range(4))
def test_arms_are_those_of_a_comparison_in_pairs(tmp_path: Path, choices: dict[str, list[Any]], draw: int):
    random = Random(draw)
    written = load_job(write_job(tmp_path / "job", method="heterofl"))
    jobs = []
    for seed in range(24):
        settings = {key: random.choice(values) for key, values in choices.items() if random.random() < 0.8}
        digests = {name: random.choice(["11", "22"]) for name in ("a.json", "b.json")}
        files = random.choice([{}, {"device_conf_file": digests}])
        config = {**written.header["config"], "seed": seed, "device_conf_file": "a.json", **settings}
        header = {**written.header, "seed": seed, "config": config, "named_files": files,
                  "params": random.choice([{}, {"clip_norm": 5.0}])}  # fmt: skip
        jobs.append(replace(written, header=header))
    expected = grouped_in_pairs(jobs)
    assert 1 < len(expected) < len(jobs)
    assert [arm.seeds for arm in arms_of(jobs)] == [[job.seed for job in group] for group in expected]
    device_files = {key for one, other in combinations(jobs, 2) for key in differences([one, other])} & {*DEVICE_FILES}
    assert any("different devices" in sentence for sentence in cautions(arms_of(jobs))) == bool(device_files)


def test_the_work_to_compare_jobs_grows_with_their_number_and_not_with_its_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    judged: list[str] = []  # settings, each time that a job learns whether it reads one
    compared: list[str] = []
    same_setting = LoadedJob.same_setting

    def counted(job: LoadedJob, other: LoadedJob, key: str) -> bool:
        compared.append(key)
        return same_setting(job, other, key)

    monkeypatch.setattr(loading, "is_unread", lambda job, key: bool(judged.append(key)))
    monkeypatch.setattr(LoadedJob, "same_setting", counted)
    written = load_job(write_job(tmp_path / "job"))

    def work(count: int) -> tuple[int, int]:
        judged.clear()
        compared.clear()
        rates = [0.1 * (1 + seed // 2) for seed in range(count)]
        headers = [{**written.header, "seed": seed, "config": {**written.header["config"], "learning_rate": rate}}
                   for seed, rate in enumerate(rates)]  # fmt: skip
        arms = arms_of([replace(written, header=header) for header in headers])
        assert len(arms) == count // 2 and len(cautions(arms)) == 1
        return len(judged), len(compared)

    few, many = work(4), work(16)
    assert 0 < many[0] <= 4 * few[0] and 0 < many[1] <= 8 * few[1]
