"""What tells arms apart: their labels, and the settings in which they differ."""

from pathlib import Path

from written_job import write_job

from fedscale_ext.report.compare.arm_labels import differences, settings_table, short
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import LoadedJob, load_job


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
