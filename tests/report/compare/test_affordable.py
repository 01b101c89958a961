"""Rows of a comparison whose devices afford models of different size."""

from pathlib import Path

from written_job import write_job

from fedscale_ext.report.compare.cautions import cautions
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.compare.comparison_table import table_rows, terminal_table
from fedscale_ext.report.compare.competing import best, conditions
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import LoadedJob, load_job


def test_costs_compete_where_devices_afford_the_same_only(tmp_path: Path):
    """By default the weakest device affords the method's base model, which may be 50 times smaller for one of them."""
    large, small = (
        load_job(write_job(tmp_path / method, method=method, affords=factor))
        for method, factor in (("fedavg", 50.0), ("heterofl", 1.0))
    )
    small.summary["cost"]["training_macs"] /= 2
    arms = arms_of([large, small])
    assert best(arms, BY_KEY["macs"]) == set() and len({conditions(arm, BY_KEY["accuracy"]) for arm in arms}) == 1
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
    assert best(arms, BY_KEY["macs"]) == set() and len({conditions(arm, BY_KEY["accuracy"]) for arm in arms}) == 1
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
    assert len({conditions(arm, BY_KEY["macs"]) for arm in arms_of(jobs)}) == 1


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
    _, rows = terminal_table(arms, table_rows(arms))
    assert [row[0] for row in rows][:3] == ["fedavg (beyond capacity)", "heterofl", "fjord"]
    few = load_job(write_job(tmp_path / "few", method="splitmix", beyond_capacity=1))
    assert arms_of([few])[0].beyond_capacity == 0
