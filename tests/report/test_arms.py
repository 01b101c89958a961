"""Jobs that differ in their seed alone are one arm: its figures, its label and the settings by which arms differ."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_job import write_job

from fedscale_ext.report.arms import BY_KEY, Arm, arms_of, best, differences, pooled, settings_table, short
from fedscale_ext.report.cautions import cautions
from fedscale_ext.report.loading import LoadedJob, load_job


def test_jobs_that_differ_in_their_seed_are_one_arm(arms):
    assert [(arm.label, arm.seeds) for arm in arms] == [("fedtrans", [0, 1]), ("heterofl", [0]), ("fedavg", [0])]


def test_mean_and_unbiased_deviation_over_seeds(arms):
    first, second = arms[0].figures["accuracy"]
    assert first - second == pytest.approx(0.02)
    assert arms[0].mean("accuracy") == pytest.approx((first + second) / 2)
    assert arms[0].std("accuracy") == pytest.approx(0.02 / np.sqrt(2))
    assert arms[1].std("accuracy") is None
    assert arms[2].mean("suite") is None and arms[2].state == "round 20 of 40"


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


def test_a_learning_rate_below_the_minimum_is_told_as_it_was_used(tmp_path: Path):
    jobs = [
        load_job(write_job(tmp_path / str(index), settings={"learning_rate": rate, "min_learning_rate": 5e-5}))
        for index, rate in enumerate((1e-6, 5e-5, 0.1))
    ]
    assert [arm.label for arm in arms_of(jobs)] == [
        "fedtrans, learning_rate 1e-06 (used 5e-05)", "fedtrans, learning_rate 5e-05", "fedtrans, learning_rate 0.1"
    ]  # fmt: skip
    assert settings_table(arms_of(jobs)) == {"learning_rate": ["1e-06 (used 5e-05)", "5e-05", "0.1"]}


def test_a_minimum_that_the_method_does_not_read_leaves_the_learning_rate_as_it_is(tmp_path: Path):
    jobs = []
    for rate in (1e-6, 1e-5):
        settings = {"method": "fednas", "min_learning_rate": 5e-5, "learning_rate": rate}
        jobs.append(load_job(write_job(tmp_path / str(rate), method="fednas", settings=settings)))
    assert [arm.label for arm in arms_of(jobs)] == ["fednas, learning_rate 1e-06", "fednas, learning_rate 1e-05"]


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


def test_labels_say_what_differs(tmp_path: Path):
    one = load_job(write_job(tmp_path / "a", settings={"local_steps": 5}))
    two = load_job(write_job(tmp_path / "b", settings={"local_steps": 10}))
    three = load_job(write_job(tmp_path / "c", data={"name": "x", "generated": False, "digest": "0"}))
    assert [arm.label for arm in arms_of([one, two])] == ["fedtrans, local_steps 5", "fedtrans, local_steps 10"]
    assert [arm.label for arm in arms_of([one, three])] == ["fedtrans, femnist", "fedtrans, x"]
    many = {"local_steps": 5, "batch_size": 1, "unit_size": 2, "augment": "flip"}
    four = load_job(write_job(tmp_path / "d", settings=many))
    plain = load_job(write_job(tmp_path / "e"))
    assert [arm.label for arm in arms_of([four, plain])] == ["d", "e"]
    assert differences([one, two]) == {"local_steps": [5, 10]}
    assert settings_table(arms_of([one, two])) == {"local_steps": ["5", "10"]}


def test_keys_of_other_methods_are_no_difference(tmp_path: Path):
    # a release before this one compared them, and a sweep gives all of its methods' keys to each job
    one = load_job(write_job(tmp_path / "a", seed=1, settings={"fedmd.groups": [1, 2], "fedtrans.beta": 0.1}))
    two = load_job(write_job(tmp_path / "b", seed=2, settings={"fedmd.groups": [2, 1], "fedtrans.beta": 0.1}))
    (arm,) = arms_of([one, two])
    assert arm.seeds == [1, 2] and arm.jobs[0].settings["fedtrans.beta"] == 0.1
    other = load_job(write_job(tmp_path / "c", method="fedmd", settings={"fedmd.groups": [1, 2]}))
    assert set(differences([one, other])) == {"method", "fedmd.groups", "fedtrans.beta"}
    assert differences([one, other])["fedmd.groups"] == [None, [1, 2]]


def test_labels_that_plots_would_cut_to_the_same_are_the_jobs_names(tmp_path: Path):
    jobs = [load_job(write_job(tmp_path / name, method="moss", params=params)) for name, params in (
        ("long-one", {"types": ["resnet18_speech", "mobilenetv2_thin", "lenet_80k", "lenet_6k"], "epochs": 9}),
        ("long-two", {"types": ["resnet18_speech", "mobilenetv2_wide", "lenet_80k", "lenet_6k"], "epochs": 9}),
        ("other", {"types": ["lenet_6k"], "epochs": 9}),
    )]  # fmt: skip
    arms = arms_of(jobs)
    assert [arm.label for arm in arms] == ["long-one", "long-two", "moss, types ['lenet_6k']"]
    assert len({short(arm.label) for arm in arms}) == 3


def test_a_row_of_a_sweeps_seeds_has_its_jobs_names_without_the_seed(tmp_path: Path):
    many = {"momentum": 0.5, "min_lr": 0.1, "decay_round": 3, "local_steps": 2}

    def job(name: str, seed: int, settings: dict[str, object] | None = None, **head: object) -> LoadedJob:
        return load_job(write_job(tmp_path / name, seed=seed, settings=settings, **head))

    def labels(*jobs: LoadedJob) -> list[str]:
        return [arm.label for arm in arms_of(jobs)]

    seeds = [job(f"sweep-s{seed}", seed, many) for seed in (1, 2, 13)]
    other = job("other-s1", 1)
    assert labels(*seeds, other) == ["sweep", "other-s1"]
    assert labels(seeds[0], other) == ["sweep-s1", "other-s1"], "one job is no mean"
    unfinished = job("sweep-s4", 4, many, finished=False, rounds=10)
    assert labels(seeds[0], unfinished, other) == ["sweep", "other-s1"]
    assert labels(*seeds, job("alone", 5, many), other) == ["sweep-s1", "other-s1"], "not one sweep's names"
    assert labels(*seeds, job("third-s2", 3, many), other) == ["sweep-s1", "other-s1"], "the suffix is no seed"
    assert labels(*seeds, job("sweep", 1)) == ["1: sweep", "2: sweep"]


def test_names_that_plots_would_cut_to_the_same_are_numbered(tmp_path: Path):
    types = [["nets:Net(width=3)", f"nets:Net(width={width})", "nets:Net(width=9, depth=2)"] for width in (4, 5)]
    begin, end = "swp-fedproto.types_nets_Net_width_", "_depth_1_nets_Net_width_6_depth_2-local_steps_3-s1"
    arms = arms_of([
        load_job(write_job(tmp_path / f"{begin}{number}{end}", method="fedproto", params={"types": each}))
        for number, each in enumerate(types)
    ])  # fmt: skip
    names = [short(arm.label) for arm in arms]
    assert [name[:6] for name in names] == ["1: swp", "2: swp"] and all(len(name) <= 44 for name in names)
    assert short("a" * 60 + "b") == "a" * 22 + "…" + "a" * 20 + "b"


def test_a_methods_own_settings_are_told_where_its_arms_differ(tmp_path: Path):
    one = load_job(write_job(tmp_path / "a", params={"beta": 1, "gamma": 2}, settings={"data_dir": "x"}))
    two = load_job(write_job(tmp_path / "b", params={"beta": 3, "gamma": 2}, settings={"data_dir": "y"}))
    other = load_job(write_job(tmp_path / "c", method="fedavg"))
    settings = settings_table(arms_of([one, two, other]))
    assert settings == {"method": ["fedtrans", "fedtrans", "fedavg"], "fedtrans.beta": ["1", "3", "–"]}


def test_all_seeds_clients_are_pooled_without_the_untested(arms):
    assert len(pooled(arms[0])) == 120 and len(pooled(arms[1])) == 60


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
