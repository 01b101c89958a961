import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_job import write_job

from fedscale_ext.report.arms import (
    BY_KEY,
    FIGURES,
    Figure,
    arms_of,
    best,
    differences,
    pooled,
    settings_table,
    short,
    shown,
)
from fedscale_ext.report.cautions import cautions
from fedscale_ext.report.compared import comma_separated, comparison_rows, has_papers, lines
from fedscale_ext.report.loading import LoadedJob, load_job
from fedscale_ext.report.published import paper_row


@pytest.fixture
def arms(folders: list[Path]):
    return arms_of([load_job(folder) for folder in folders])


def test_jobs_that_differ_in_their_seed_are_one_arm(arms):
    assert [(arm.label, arm.seeds) for arm in arms] == [("fedtrans", [0, 1]), ("heterofl", [0]), ("fedavg", [0])]


def test_mean_and_unbiased_deviation_over_seeds(arms):
    first, second = arms[0].figures["accuracy"]
    assert first - second == pytest.approx(0.02)
    assert arms[0].mean("accuracy") == pytest.approx((first + second) / 2)
    assert arms[0].std("accuracy") == pytest.approx(0.02 / np.sqrt(2))
    assert arms[1].std("accuracy") is None
    assert arms[2].mean("suite") is None and arms[2].state == "round 20 of 40"


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


def test_costs_compete_among_equal_overcommitment_only(tmp_path: Path):
    """Clients that are too slow to count cost nothing, so that more of them would win the costs."""
    jobs = [
        load_job(write_job(tmp_path / str(value), shift=value / 100, settings={"overcommitment": value}))
        for value in (1.0, 2.0)
    ]
    arms = arms_of(jobs)
    assert len({arm.comparable(BY_KEY["network"]) for arm in arms}) == 2
    assert len({arm.comparable(BY_KEY["accuracy"]) for arm in arms}) == 1
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
    assert len({arm.comparable(BY_KEY["macs"]) for arm in arms}) == 2
    assert len({arm.comparable(BY_KEY["served"]) for arm in arms}) == 1
    assert not any(note.startswith("Updates failed") for note in cautions(arms[1:]))


def test_costs_compete_where_devices_afford_the_same_only(tmp_path: Path):
    """By default the weakest device affords the method's base model, which may be 50 times smaller for one of them."""
    large, small = (
        load_job(write_job(tmp_path / method, method=method, affords=factor))
        for method, factor in (("fedavg", 50.0), ("heterofl", 1.0))
    )
    small.summary["cost"]["training_macs"] /= 2
    arms = arms_of([large, small])
    assert best(arms, BY_KEY["macs"]) == set() and len({arm.comparable(BY_KEY["accuracy"]) for arm in arms}) == 1
    (note,) = cautions(arms)
    assert note.startswith(
        "The same devices afford models of different size (fedavg 50 k to 3.1 M; heterofl 1 k to 62 k MACs per sample; "
        "the strongest client 50 times as many), as the methods' base models differ: "
    )
    unknown = load_job(write_job(tmp_path / "old", method="fjord", clients=False))
    assert cautions(arms_of([large, unknown])) == []


def faster(folder: Path, factor: float, **keys: object) -> LoadedJob:
    """A job whose weakest client affords what it does elsewhere, and each other ``factor`` times as much."""
    job = load_job(write_job(folder, **keys))  # type: ignore[arg-type]
    assert job.clients is not None
    job.clients.capacity[1:] *= factor
    return job


def test_costs_compete_where_the_strongest_devices_afford_the_same_only(tmp_path: Path) -> None:
    """The default deadline has the time for what a method itself sends, which may be nothing."""
    alone, shared = faster(tmp_path / "local", 2, method="local"), faster(tmp_path / "fedavg", 1, method="fedavg")
    alone.summary["cost"]["training_macs"] /= 2
    arms = arms_of([alone, shared])
    assert best(arms, BY_KEY["macs"]) == set() and len({arm.comparable(BY_KEY["accuracy"]) for arm in arms}) == 1
    assert cautions(arms) == [
        "The same devices afford models of different size (local 1 k to 124 k; fedavg 1 k to 62 k MACs per sample; the "
        "strongest client 2 times as many), as the time for what each method itself sends counts: "
        "costs are marked among rows whose devices afford the same only. With the same capacity_model, or with "
        "capacity_rule: computation, rows compare."
    ]
    near = faster(tmp_path / "near", 1.001, method="local")
    assert cautions(arms_of([near, shared])) == [] and best(arms_of([alone, near]), BY_KEY["macs"]) == set()


def test_settings_by_which_devices_afford_more_are_named(tmp_path: Path) -> None:
    jobs = [faster(tmp_path / str(size), 3 - size, settings={"batch_size": size}) for size in (1, 2)]
    (note,) = cautions(arms_of(jobs))
    assert "as batch_size differs: costs" in note and note.endswith("With capacity_rule: computation, rows compare.")
    same = {"capacity_model": "cnn_small"}
    old = [faster(tmp_path / f"old {n}", n, method=m, settings=same) for n, m in ((2, "local"), (1, "fedavg"))]
    (note,) = cautions(arms_of(old))
    assert "as earlier versions counted each method's own traffic under capacity_model: costs" in note
    assert note.endswith("Run anew, rows compare.")


def test_devices_that_are_drawn_by_other_seeds_are_not_compared(tmp_path: Path) -> None:
    jobs = [faster(tmp_path / f"{method}{seed}", seed, method=method, seed=seed)
            for method, seed in (("fedavg", 1), ("fedprox", 2))]  # fmt: skip
    assert [note for note in cautions(arms_of(jobs)) if "afford" in note] == []
    assert len({arm.comparable(BY_KEY["macs"]) for arm in arms_of(jobs)}) == 1


def test_rows_beyond_the_devices_capacity_compete_apart(tmp_path: Path):
    """A large model that no device affords is more accurate than those that devices afford."""
    cases = [("fedavg", 9, 0.3), ("heterofl", 0, 0.0), ("fjord", 0, -0.1)]
    jobs = [load_job(write_job(tmp_path / method, method=method, shift=shift, beyond_capacity=beyond))
            for method, beyond, shift in cases]  # fmt: skip
    arms = arms_of(jobs)
    assert best(arms, BY_KEY["accuracy"]) == {1}
    (note,) = cautions(arms)
    clients = jobs[0].header["num_clients"]
    assert note.startswith(f"Devices train models that they do not afford in fedavg (9 of {clients} clients)")
    _, rows = comparison_rows(arms, lines(arms))
    assert [row[0] for row in rows][:3] == ["fedavg (beyond capacity)", "heterofl", "fjord"]
    few = load_job(write_job(tmp_path / "few", method="splitmix", beyond_capacity=1))
    assert arms_of([few])[0].beyond_capacity == 0


def test_generated_data_compete_apart_from_real_ones(tmp_path: Path):
    arms = arms_of([load_job(write_job(tmp_path / str(generated), generated=generated)) for generated in (False, True)])
    assert len({arm.comparable(BY_KEY["accuracy"])[1] for arm in arms}) == 2


def test_the_settings_that_make_data_differ_are_named(tmp_path: Path):
    def job(name: str, digest: str, **settings: object):
        data = {"name": "mine", "generated": False, "digest": digest}
        return load_job(write_job(tmp_path / name, settings=settings, data=data))

    one = job("a", "1", sample_shape=None)
    other = job("b", "2", sample_shape=[1, 14, 14])
    assert "samples or clients are not: sample_shape differ." in cautions(arms_of([one, other]))[0]
    assert "samples or clients are not: files differ." in cautions(arms_of([one, job("c", "3", sample_shape=None)]))[0]


def test_a_learning_rate_below_the_minimum_is_told_as_it_was_used(tmp_path: Path):
    jobs = [
        load_job(write_job(tmp_path / str(index), settings={"learning_rate": rate, "min_learning_rate": 5e-5}))
        for index, rate in enumerate((1e-6, 5e-5, 0.1))
    ]
    assert [arm.label for arm in arms_of(jobs)] == [
        "fedtrans, learning_rate 1e-06 (used 5e-05)", "fedtrans, learning_rate 5e-05", "fedtrans, learning_rate 0.1"
    ]  # fmt: skip
    assert settings_table(arms_of(jobs)) == {"learning_rate": ["1e-06 (used 5e-05)", "5e-05", "0.1"]}


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


def test_an_earlier_releases_job_has_the_default_of_a_key_that_it_lacks(tmp_path: Path):
    old = load_job(write_job(tmp_path / "a", seed=0))
    new = load_job(write_job(tmp_path / "b", seed=1, settings={"stop_gain": None, "stop_patience": 10, "data_seed": 1}))
    assert [arm.seeds for arm in arms_of([old, new])] == [[0, 1]]


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
    """As much of an arm as a mark needs: one mean, on the same data as the others."""

    value: float
    state: str = ""
    disqualified: str | None = None

    def comparable(self, figure: Figure) -> tuple[str, int, bool]:
        return "data", 20, False

    def mean(self, key: str) -> float:
        return self.value


_NOISE = st.floats(-1e-12, 1e-12)


@pytest.mark.parametrize("key", ["accuracy", "macs"])
@given(
    top=st.integers(1, 50),
    values=st.lists(st.tuples(st.integers(1, 50), _NOISE), min_size=2, max_size=5),
)
def test_rounding_noise_changes_no_mark(key: str, top: int, values: list[tuple[int, float]]):
    exact = [_Row(number / 6 * top) for number, _ in values]
    noisy = [_Row(number / 6 * top * (1 + noise)) for number, noise in values]
    assert best(noisy, BY_KEY[key]) == best(exact, BY_KEY[key])


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
    assert best([_Row(value) for value in values], BY_KEY["accuracy"]) == marked


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
    assert comparison_rows([arm], lines([arm]))[1][0][0] == f"fedtrans ({state})"


def test_all_seeds_clients_are_pooled_without_the_untested(arms):
    assert len(pooled(arms[0])) == 120 and len(pooled(arms[1])) == 60


def test_the_papers_row_stands_below_ours_for_real_data_only(arms, tmp_path: Path):
    rows = lines(arms)
    assert [row.label for row in rows] == [
        "fedtrans", "fedtrans: FedTrans, Table 2, LEAF's FEMNIST",
        "heterofl", "heterofl: FedTrans, Table 2, LEAF's FEMNIST", "fedavg",
    ]  # fmt: skip
    paper = dict(zip([figure.key for figure in shown(arms)], rows[1].cells, strict=True))
    assert (paper["accuracy"].value, paper["macs"].value, paper["suite"].value) == ("76.42", "100 T", "–")
    assert rows[0].cells[0].best and rows[0].cells[0].spread.startswith("± ") and not rows[2].cells[0].spread
    assert not has_papers(lines(arms_of([load_job(write_job(tmp_path / "made", generated=True))])))


def test_the_csv_has_every_job_at_full_precision(arms):
    head, *rows = [line.split(",") for line in comma_separated(arms).splitlines()]
    assert head[:6] == ["arm", "job", "seed", "data", "finished", "accuracy"] and len(rows) == 4
    assert float(rows[0][5]) == arms[0].figures["accuracy"][0]
    assert rows[3][4] == "no" and rows[3][head.index("suite")] == ""


def test_the_whole_models_accuracy_is_a_column_where_a_job_has_it(arms, tmp_path: Path):
    assert "global" not in comma_separated(arms) and "global accuracy %" not in comparison_rows(arms, lines(arms))[0]
    jobs = [load_job(write_job(tmp_path / name, method=name, whole=whole, data_set="unimib_shar", params={"k": 50}))
            for name, whole in (("hypemefed", 0.625), ("depthfl", 0.5), ("fedtrans", None))]  # fmt: skip
    three = arms_of(jobs)
    titles, rows = comparison_rows(three, lines(three))
    index = titles.index("global accuracy %")
    assert index == 3 and [row[index] for row in rows] == ["62.50*", "50.00", "–"]
    first, paper, second, third = (row.cells[1] for row in lines(three))
    assert (first.value, first.best, paper.value, second.best, third.value) == ("62.50", True, "38.76", False, "–")
    head, *values = [line.split(",") for line in comma_separated(three).splitlines()]
    assert [row[head.index("global")] for row in values] == ["0.625", "0.5", ""]


def test_no_deviation_is_not_told(arms):
    arms[0].figures["accuracy"], arms[0].figures["macs"] = [0.5, 0.5], [1e9, 1e9]
    assert "±" not in comparison_rows(arms, lines(arms))[1][0][2]
    assert not any(cell.spread for cell in lines(arms)[0].cells if cell.value in ("50.00", "1.00 G"))


def test_the_terminals_table_has_a_star_for_the_best(arms):
    titles, rows = comparison_rows(arms, lines(arms))
    assert titles[:3] == ["", "jobs", "accuracy %"]
    assert rows[0][2].endswith("*") and "±" in rows[0][2] and rows[2][0] == "fedavg (round 20 of 40)"


@pytest.mark.parametrize(
    ("method", "data_set", "params", "where", "accuracy"),
    [
        ("hypemefed", "unimib_shar", {"k": 100}, "HypeMeFed, Table 1, k = 100", 0.3886),
        ("hypemefed", "unimib_shar", {"k": 7}, "HypeMeFed, Table 1, k = 7", None),
        ("fluid", "speech", {}, "FedTrans, Table 2, Speech Commands", 0.765),
        ("fedavg", "speech", {}, "", None),
        ("fluid", "stl10", {}, "", None),
    ],
)
def test_papers_rows(method, data_set, params, where, accuracy):
    header = {"method": method, "params": params, "config": {"data_set": data_set}, "data": {"generated": False}}
    source, figures = paper_row(header)
    assert source == where and figures.get("global" if method == "hypemefed" else "accuracy") == (
        None if accuracy is None else pytest.approx(accuracy)
    )


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
    assert [row[:2] for row in comparison_rows(arms, lines(arms))[1]][:2] == [["fedtrans", "2 of 3"], ["fedavg", "1"]]
    assert comma_separated(arms).splitlines()[3].split(",")[:5] == ["fedtrans", "early", "2", "femnist", "no"]
    (alone,) = arms_of([early])
    assert alone.jobs == [early] and alone.state == "round 10 of 20"
    assert cautions([alone])[-1].startswith("Not finished: early (round 10 of 20; round 11: every client failed, ")


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
        assert len({arm.comparable(BY_KEY[key]) for arm in arms}) == 2
    for key in ("global", "on_all", "macs", "network"):  # no test of these is masked
        assert len({arm.comparable(BY_KEY[key]) for arm in arms}) == 1
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
