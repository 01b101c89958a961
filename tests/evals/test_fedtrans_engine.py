"""The engine of FedTrans's tables and figures: what it runs, does not run again, and writes."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals.fedtrans import fig13, regime, table1, table3
from evals.fedtrans.arms import LARGEST, MIDDLE, anchors
from evals.fedtrans.settings import PAPER, main
from evals.paper import jobs, output, plots
from evals.paper.engine import _relative, planned
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.job_keys import Parameter, WeightsOf
from evals.paper.output import aggregated
from evals.paper.runs import Records
from fedscale_ext.metrics.models import load_model

NOTE = "Seed 1 has other data."
EXPERIMENT = Experiment(
    "try",
    "Two methods",
    [
        Arm("FedTrans", {"method": "fedtrans"}, paper={"accuracy %": 76.42}),
        Arm("largest", {"method": "fedavg", "model": LARGEST}),
        Arm("middle", {"method": "fedavg", "model": MIDDLE}),
        Arm("absent", {"method": "nobody"}),
    ],
    plot=plots.bars("accuracy %"),
)


@pytest.fixture(scope="module")
def places(tiny_femnist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("evals")
    (root / "data").mkdir()
    (root / "data" / "chars74k").symlink_to(tiny_femnist)
    return {"folder": root / "data", "runs": root / "runs", "results": root / "results"}


def call(experiment: Experiment, places: dict[str, Path], *more: str) -> int:
    options = [word for name, path in places.items() for word in (f"--{name}", str(path))]
    return main(experiment, ["--scale", "smoke", "--set", "batch_size=5", *options, *more])


@pytest.fixture(scope="module")
def done(places: dict[str, Path]) -> list[dict[str, Any]]:
    assert call(EXPERIMENT, places, "--seeds", "1", "2") == 1  # a method is missing
    return rows_of(places["results"])


def rows_of(folder: Path, table: str = "try_smoke") -> list[dict[str, Any]]:
    """The recorded rows of a table."""
    return output.rows_of(Records.load(folder), table)


def test_every_arm_and_seed_has_its_figures(done: list[dict[str, Any]]) -> None:
    rows = {row["label"]: row for row in done}
    assert rows["FedTrans"]["seeds"] == [1, 2] and rows["FedTrans"]["data"] == "chars74k"
    assert len(rows["FedTrans"]["figures"]["accuracy %"]["values"]) == 2
    assert rows["FedTrans"]["figures"]["models"]["mean"] > 1
    assert rows["largest"]["figures"]["models"]["mean"] == 1
    assert rows["largest"]["figures"]["MACs of largest"] == rows["FedTrans"]["figures"]["MACs of largest"]
    assert rows["middle"]["figures"]["MACs of largest"]["mean"] < rows["largest"]["figures"]["MACs of largest"]["mean"]


def test_a_missing_method_is_said_and_ends_nothing_else(done: list[dict[str, Any]]) -> None:
    row = done[-1]
    assert row["failed"] == ["there is no method 'nobody' here"] and row["seeds"] == []


def test_the_table_sets_paper_beside_here(done: list[dict[str, Any]], places: dict[str, Path]) -> None:
    text = (places["results"] / "results.md").read_text()
    assert "\nData: chars74k; scale: smoke; seeds: 1, 2.\n" in text and "| FedTrans | 76.42 / " in text
    assert "\nThere is no method 'nobody' here: `absent`.\n" in text


def test_a_line_has_the_keys_that_made_its_job(done: list[dict[str, Any]], places: dict[str, Path]) -> None:
    records = Records.load(places["results"])
    assert len(records.runs) == 6
    for run in records.runs.values():
        job = next(places["runs"].glob(f"logs/{run.keys['method']}_*_1/run"))
        header, summary = (json.loads((job / f"{name}.json").read_text()) for name in ("header", "summary"))
        assert run.keys["batch_size"] == 5 and run.keys["rounds"] == summary["rounds"]
        assert (run.code or "absent")[:12] == header["versions"]["commit"][:12]
        assert run.scale == "smoke" and run.data == "chars74k" and not run.part and "data_dir" not in run.keys
    models = {run.keys["model"].rpartition(" ")[0] for run in records.runs.values() if run.keys["method"] == "fedavg"}
    assert models == {"@largest:FedTrans", "@middle:FedTrans"}


def test_the_picture_is_drawn_on_demand(done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path) -> None:
    call(EXPERIMENT, {**places, "results": tmp_path}, "--plot", str(tmp_path / "x.png"))
    assert (tmp_path / "x.png").stat().st_size > 10_000
    assert {path.name for path in places["results"].iterdir()} == {"runs.jsonl", "tables.json", "results.md"}


def test_finished_jobs_are_not_run_again(
    done: list[dict[str, Any]], places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(job: Path, keys: dict[str, Any]) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(jobs, "_in_process", never)
    call(EXPERIMENT, places, "--seeds", "1", "2")
    assert rows_of(places["results"]) == done


def test_arms_that_are_not_named_stay_as_not_run(
    done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path
) -> None:
    elsewhere = {**places, "results": tmp_path}
    assert call(EXPERIMENT, elsewhere, "--arms", "largest", "FedTrans") == 0
    text = (elsewhere["results"] / "results.md").read_text()
    rows = rows_of(elsewhere["results"])
    assert [row["label"] for row in rows] == ["FedTrans", "largest", "middle", "absent"]
    assert [row["seeds"] for row in rows] == [[1], [1], [], []]
    assert "\nNot run: `middle`, `absent`.\n" in text
    assert "--seeds 1 --arms largest FedTrans --set=batch_size=5\n" in text
    for arms, said in (["none"], "there is no arm 'none'; there are 'FedTrans'"), (["middle"], "model of 'FedTrans'"):
        with pytest.raises(SystemExit, match=said):
            call(EXPERIMENT, elsewhere, "--arms", *arms)


def test_what_was_not_reached_yet_is_not_run(
    done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> str:
        raise KeyboardInterrupt

    elsewhere = {**places, "results": tmp_path}
    monkeypatch.setattr(jobs, "model_file", stop)
    with pytest.raises(KeyboardInterrupt):
        call(EXPERIMENT, elsewhere)
    rows = rows_of(tmp_path)
    assert [row["failed"] for row in rows] == [[], ["not run"], ["not run"], ["not run"]]


def test_seeds_of_an_earlier_machine_stay(done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path) -> None:
    elsewhere = {**places, "results": tmp_path}
    records = replace(Records.load(places["results"]), folder=tmp_path)
    (first,) = records.tables["try_smoke"].commands
    records.tables["try_smoke"] = replace(
        records.tables["try_smoke"], notes=[NOTE], incomparable={"FedTrans": "is older", "gone": "is gone"}
    )
    records.save()
    assert call(EXPERIMENT, elsewhere, "--seeds", "3", "1", "--arms", "FedTrans") == 0
    table = Records.load(tmp_path).tables["try_smoke"]
    assert table.notes == [NOTE] and table.incomparable == {"FedTrans": "is older"}
    assert table.commands[0] == first and table.commands[1].endswith("--seeds 3 1 --arms FedTrans --set=batch_size=5")
    rows = rows_of(tmp_path)
    assert [(row["label"], row["seeds"]) for row in rows] == [
        ("FedTrans", [1, 2, 3]), ("largest", [1, 2]), ("middle", [1, 2]), ("absent", [])
    ]  # fmt: skip
    assert rows[0]["figures"]["accuracy %"]["values"][:2] == done[0]["figures"]["accuracy %"]["values"]
    assert rows[3]["failed"] == ["not run"]
    text = (tmp_path / "results.md").read_text()
    assert "| FedTrans | 1, 2, 3 | 76.42 / " in text and f"\n**{NOTE}**\n" in text


def test_jobs_of_other_keys_are_of_another_table(
    done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = {**places, "results": tmp_path, "runs": tmp_path / "runs"}
    replace(Records.load(places["results"]), folder=tmp_path).save()
    more = ["--arms", "FedTrans", "--set", "rounds=2"]
    assert call(EXPERIMENT, elsewhere, *more) == 2
    said = capsys.readouterr().err
    assert said == (
        "table try_smoke has jobs with --set=batch_size=5: give the same, or name another table with --table\n"
    )
    assert rows_of(tmp_path) == done
    assert call(EXPERIMENT, elsewhere, *more, "--table", "2_rounds") == 0
    assert rows_of(tmp_path) == done
    (row,) = (row for row in rows_of(tmp_path, "try_smoke_2_rounds") if row["seeds"])
    assert row["figures"]["rounds"]["values"] == [2]
    rounds = [run.keys["rounds"] for run in Records.load(tmp_path).runs.values() if run.keys["method"] == "fedtrans"]
    assert len(rounds) == 3 and rounds.count(2) == 1


def test_equal_jobs_of_several_tables_are_one_line(
    done: list[dict[str, Any]], places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)
    second = replace(EXPERIMENT, name="second", arms=[Arm("ours", {"method": "fedtrans"})])
    third = replace(second, name="third", rows=lambda runs: [replace(run, figures={"x": 3.0}) for run in runs])
    for experiment in (replace(EXPERIMENT, arms=EXPERIMENT.arms[:1]), second, third):
        assert call(experiment, {**places, "results": tmp_path}) == 0
    records = Records.load(tmp_path)
    (line,) = records.runs.values()
    assert line.figures["x"] == 3.0 and line.figures["models"] > 1  # each table's columns
    assert [list(row.runs) for table in records.tables.values() for row in table.rows] == [[line.id]] * 3


def test_rows_made_of_jobs_and_of_rows_are_there_once(tmp_path: Path) -> None:
    def doubled(runs: Sequence[Run]) -> list[Run]:
        return [replace(run, arm=Arm("twice"), figures={"x": 2 * run.figures["x"]}) for run in runs]

    def total(runs: Sequence[Run]) -> list[Run]:
        added = {seed: sum(run.figures["x"] for run in runs if run.seed == seed and run.arm.label != "total")
                 for seed in {run.seed for run in runs}}  # fmt: skip
        one_of = {run.seed: run for run in runs}  # what a script may take for the rest
        return [replace(one_of[seed], arm=Arm("total"), figures={"x": value}) for seed, value in sorted(added.items())]

    table = Experiment("made", "Made", [], rows=doubled, derived=total)

    def write(figures: dict[int, float]) -> dict[str, Any]:
        runs = [Run(Arm("job"), "x", seed, tmp_path / str(seed), {"x": value}, keys={"method": "fedavg"})
                for seed, value in figures.items()]  # fmt: skip
        output.record(table, runs, tmp_path, "made", "c", "smoke")
        rows = rows_of(tmp_path, "made")
        return {row["label"]: (row["seeds"], row["figures"]["x"]["values"]) for row in rows}

    assert write({1: 5.0, 2: 7.0}) == {"twice": ([1, 2], [10.0, 14.0]), "total": ([1, 2], [10.0, 14.0])}
    assert write({2: 8.0, 3: 9.0}) == {
        "twice": ([1, 2, 3], [10.0, 16.0, 18.0]), "total": ([1, 2, 3], [10.0, 16.0, 18.0])
    }  # fmt: skip
    parts = {(run.part, *run.keys) for run in Records.load(tmp_path).runs.values()}
    assert parts == {("twice", "method"), ("total", "table")}


def test_what_is_added_is_no_longer_called_not_run(places: dict[str, Path], tmp_path: Path, done: Any) -> None:
    """Where a job makes rows of other names, its arm is not called not run beside them."""

    def halves(runs: Sequence[Run]) -> list[Run]:
        return [replace(run, arm=Arm(f"{run.arm.label}, {half}")) for run in runs for half in ("a", "b")]

    table = replace(EXPERIMENT, name="halves", rows=halves)
    elsewhere = {**places, "results": tmp_path}

    def labels(*more: str) -> list[tuple[str, list[int]]]:
        call(table, elsewhere, *more)
        return [(row["label"], row["seeds"]) for row in rows_of(tmp_path, "halves_smoke")]

    first = [("FedTrans, a", [1]), ("FedTrans, b", [1])]
    rest: list[tuple[str, list[int]]] = [("middle", []), ("absent", [])]
    assert labels("--seeds", "1", "--arms", "FedTrans") == [*first, ("largest", []), *rest]
    both = labels("--seeds", "1", "--arms", "FedTrans", "largest")
    assert both == [*first, ("largest, a", [1]), ("largest, b", [1]), *rest]
    again = labels("--seeds", "1", "--arms", "FedTrans")
    assert again == both


def test_jobs_of_newer_code_replace_those_of_their_row_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)
    table, other = (Experiment(name, name, [Arm("A"), Arm("B")]) for name in ("one", "other"))

    def record(experiment: Experiment, code: str, *runs: tuple[str, int]) -> None:
        """One job after the other, as scripts do."""
        done = []
        for label, seed in runs:
            done.append(Run(Arm(label), "x", seed, tmp_path, {"f": float(code)}, keys={"method": label}, code=code))
            output.record(experiment, done, tmp_path, experiment.name, code, "smoke")

    def figures(name: str) -> dict[str, dict[int, float]]:
        return {row["label"]: dict(zip(row["seeds"], row["figures"]["f"]["values"], strict=True))
                for row in rows_of(tmp_path, name)}  # fmt: skip

    for experiment in (table, other):
        record(experiment, "1", ("A", 1), ("A", 2), ("B", 1))
    assert len(Records.load(tmp_path).runs) == 3
    record(table, "2", ("A", 1), ("A", 2), ("A", 3))
    assert figures("one") == {"A": {1: 2.0, 2: 2.0, 3: 2.0}, "B": {1: 1.0}}
    assert figures("other") == {"A": {1: 1.0, 2: 1.0}, "B": {1: 1.0}}
    assert "\nIts jobs are of several versions of the code: 1, 2.\n" in (tmp_path / "results.md").read_text()
    record(other, "2", ("A", 1), ("A", 2), ("B", 1))
    assert sorted(run.code or "" for run in Records.load(tmp_path).runs.values()) == ["1", "2", "2", "2", "2"]


def test_scripts_at_the_same_time_keep_each_others_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each records after every job, and began before the others recorded anything."""
    monkeypatch.setattr(output, "experiment_of", lambda paper, script: EXPERIMENT)

    def script(number: int) -> None:
        experiment = Experiment(f"t{number}", "T", [Arm("A")])
        runs = [Run(Arm("A"), "x", seed, tmp_path, {"f": 1.0}, keys={"n": number}) for seed in range(5)]
        for last in range(5):
            output.record(experiment, runs[: last + 1], tmp_path, experiment.name, "c", "smoke")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(script, range(4)))
    records = Records.load(tmp_path)
    assert len(records.runs) == 20
    assert [len(row.runs) for table in records.tables.values() for row in table.rows] == [5] * 4


def test_an_interrupted_job_is_continued(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, done: Any) -> None:
    log_dir = next(places["runs"].glob("logs/fedtrans_chars74k_*_1/run"))
    summary = log_dir / "summary.json"
    before = json.loads(summary.read_text())
    summary.unlink()
    seen = []
    real = jobs._in_process
    monkeypatch.setattr(jobs, "_in_process", lambda job, keys: seen.append(keys["resume"]) or real(job, keys))
    call(EXPERIMENT, places)
    assert seen == [True]
    assert json.loads(summary.read_text())["accuracy"] == before["accuracy"]


def test_a_baseline_has_the_devices_of_the_job_whose_model_it_is_given(places: dict[str, Path], done: Any) -> None:
    given = [json.loads(path.read_text()) for path in places["runs"].glob("logs/fedavg_*_1/run/header.json")]
    assert {one["config"]["capacity_model"] for one in given} == {PAPER.base_model}
    for one in given:
        assert load_model(Path(one["config"]["model"]).with_suffix(".safetensors"))[0].family == "nasbench201"


def test_a_model_is_trained_on_from_its_weights(places: dict[str, Path], tmp_path: Path, done: Any) -> None:
    on = Arm("trained on", {"method": "fedavg", "model": LARGEST, "initial_weights": WeightsOf(LARGEST)})
    experiment = Experiment("on", "Trained on", [EXPERIMENT.arms[0], on, EXPERIMENT.arms[1]])
    assert call(experiment, {**places, "results": tmp_path}) == 0
    first_loss = {}  # by the weights that a job started from, of those with the largest model
    for header in places["runs"].glob("logs/fedavg_*_1/run/header.json"):
        config = json.loads(header.read_text())["config"]
        first = json.loads((header.parent / "metrics.jsonl").read_text().splitlines()[0])
        if Path(config["model"]).stem == "m2":
            first_loss[config["initial_weights"]] = first["train_loss"]
            given = str(Path(config["model"]).with_name("m2.safetensors"))
    assert first_loss.keys() == {None, given} and first_loss[given] < first_loss[None] - 0.3


def test_a_model_that_is_set_goes_to_the_job_that_others_have_theirs_from(
    places: dict[str, Path], tmp_path: Path, done: Any
) -> None:
    elsewhere = {**places, "results": tmp_path, "runs": tmp_path / "runs"}
    assert call(EXPERIMENT, elsewhere, "--arms", "FedTrans", "largest", "--set", "model=nasbench201_2x") == 0
    (first,) = (tmp_path / "runs").glob("logs/fedtrans_*/run/header.json")
    (given,) = (tmp_path / "runs").glob("logs/fedavg_*/run/header.json")
    assert json.loads(first.read_text())["config"]["model"] == "nasbench201_2x"
    config = json.loads(given.read_text())["config"]
    assert config["capacity_model"] == "nasbench201_2x" and config["model"].endswith(".json")


def test_other_data_take_each_different_arm_once() -> None:
    assert [data for _, data in planned(PAPER, table1.EXPERIMENT, "small", None)] == [
        *["chars74k"] * 2, *["cifar10-h0.5"] * 2, *["chars74k"] * 2, *["cifar10-h0.5"] * 2
    ]  # fmt: skip
    instead = planned(PAPER, table1.EXPERIMENT, "small", ["har", "speech"])
    assert [(arm.label, data) for arm, data in instead] == [
        (label, data)
        for data in ("har", "speech")
        for label in ("FedTrans", "FedTrans (l2s)", *(arm.label for arm in anchors()))
    ]
    assert not any(arm.paper for arm, _ in instead)  # of neither kind of data


def test_the_papers_figures_stand_beside_the_same_kind_of_data_and_beside_an_only_one() -> None:
    on_images = planned(PAPER, table1.EXPERIMENT, "small", ["cifar10-c2"])
    assert [arm.paper.get("accuracy %") for arm, _ in on_images[:2]] == [77.5, 54.1]
    assert planned(PAPER, table3.EXPERIMENT, "small", ["speech"])[0][0].paper["accuracy %"] == 76.42
    for data in ("mnist-h0.5", "cifar10-h0.5"):  # each with the arms whose models are for it
        small = [arm for arm, _ in planned(PAPER, regime.EXPERIMENT, "small", [data]) if "eighth" in arm.label]
        assert [("mnist" in arm.keys["model"]) == ("mnist" in data) for arm in small[:2]] == [True, True]


def test_a_swept_partition_is_that_of_other_data_too() -> None:
    assert [data for _, data in planned(PAPER, fig13.EXPERIMENT, "small", ["speech"])] == [
        "speech-h0.1", "speech-h0.5", "speech-h1", "speech-h10", "speech-h100"
    ]  # fmt: skip
    assert planned(PAPER, fig13.EXPERIMENT, "paper", None)[0][1] == "femnist-h0.1"
    with pytest.raises(SystemExit, match="fig13 deals the samples out by itself: name cifar10 alone"):
        planned(PAPER, fig13.EXPERIMENT, "small", ["cifar10-h0.5"])


def test_names_of_partitions() -> None:
    assert PAPER.split_name("har") == ("har", [])
    assert PAPER.split_name("cifar10-h0.5")[1][:4] == ["--partition", "dirichlet", "--alpha", "0.5"]
    assert PAPER.split_name("cifar10-c2")[1][:4] == ["--partition", "classes", "--classes-per-client", "2"]
    for wrong in ("nothing", "cifar10-x", "cifar10-hx", "cifar10-c", "cifar10-c2.5"):
        with pytest.raises(SystemExit, match="none of h<number>" if "-" in wrong else "no data set"):
            PAPER.split_name(wrong)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "rounds"], "--set rounds: write it as key=value"),
        (["--data", "chars74k", "nothing"], "there is no data set 'nothing'"),
    ],
)
def test_wrong_options_are_told_before_anything_is_written(
    places: dict[str, Path], tmp_path: Path, options: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        call(EXPERIMENT, {**places, "results": tmp_path / "none"}, *options)
    assert not (tmp_path / "none").exists()


def test_data_that_lack_are_told_before_the_first_job(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Path:
        raise AssertionError("a job began")

    monkeypatch.setattr(jobs, "train", never)
    elsewhere = {**places, "results": tmp_path / "none", "sources": tmp_path}
    two = Experiment("two", "Two data sets", [Arm("A", {"method": "fedavg"}, name) for name in ("chars74k", "har")])
    assert call(two, elsewhere) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"uci_har.npz (for har) is not in {tmp_path}: name the folder of such files with --sources or "
        "FEDSCALE_EXT_SHARED_DATA (evals/data.md says what they are); or run what is there with --data chars74k"
    )
    assert not (tmp_path / "none").exists()
    assert call(two, elsewhere, "--data", "mnist-h0.1", "mnist-iid", "femnist") == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "(for mnist-h0.1 and mnist-iid) is not in" in said and said.endswith("; or name other data sets with --data")
    assert f"; {places['folder'] / 'femnist'} is not there: import such data first" in said


def test_data_that_another_paper_dealt_otherwise_are_not_taken(tmp_path: Path) -> None:
    """All papers share a folder of data, in which cifar10-h0.5 may be FedTrans's 100 clients or FedorAS's 20."""
    import evals.fedoras.settings as fedoras

    (tmp_path / "cifar10-h0.5" / "client_data_mapping").mkdir(parents=True)
    (tmp_path / "cifar10-h0.5" / "client_data_mapping" / "train.csv").touch()

    def said(**partition: Any) -> list[str]:
        content = {"settings": {"partition": partition}} if partition else {}
        (tmp_path / "cifar10-h0.5" / "dataset.json").write_text(json.dumps(content))
        return [paper.missing_of(["cifar10-h0.5"], tmp_path, tmp_path) for paper in (PAPER, fedoras.PAPER)]

    theirs, ours = said(kind="dirichlet", clients=100, alpha=0.5, shards_per_client=2, classes_per_client=2)
    assert (
        not theirs and ours == f"{tmp_path / 'cifar10-h0.5'} was dealt to clients in another way: name another --folder"
    )
    theirs, ours = said(kind="dirichlet", clients=20, alpha=0.5, samples_per_client=500)
    assert theirs and not ours
    assert said(kind="dirichlet", clients=20, alpha=0.5)[1]  # sizes as they come
    assert said() == ["", ""]  # nobody knows how


def test_data_for_public_samples_must_be_there_too(
    places: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = Parameter("far")
    one = Experiment("one", "One", [Arm("A", {"method": "fedmd", far: "har", "public_dir": far}, "chars74k")])
    assert call(one, {**places, "results": tmp_path / "none", "sources": tmp_path}) == 2
    assert "uci_har.npz (for har) is not in" in capsys.readouterr().err


def test_where_data_lie_by_default_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(EXPERIMENT, ["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: what FEDSCALE_EXT_SHARED_DATA names, else shared/data beside this checkout: /" in said


def test_no_place_of_this_machine_goes_into_results() -> None:
    why = "/home/me/data/x.csv cannot be read: permission denied; '/tmp/a b' and (/x/y/) and/or 3 / 4 of C/D are fine"
    (row,) = aggregated([Run(Arm("A"), "har", 1, None, failed=why)])
    assert row["failed"] == ["x.csv cannot be read: permission denied; 'a b' and (y/) and/or 3 / 4 of C/D are fine"]


def test_files_of_the_repository_are_named_by_their_path_within() -> None:
    assert _relative(str(PAPER.folder / "models" / "one.json")) == "evals/fedtrans/models/one.json"
    assert _relative("resnet18") == "resnet18" and _relative(3) == 3


@pytest.mark.parametrize("key", ["model", "capacity_model"])
def test_a_job_is_the_same_wherever_its_models_file_is(tmp_path: Path, key: str) -> None:
    names = []
    for place, stem in (("a", 2), ("b", 2), ("c", 4)):
        file = tmp_path / place / "one.json"
        file.parent.mkdir()
        file.write_text(json.dumps({"stem": stem}))
        names.append(jobs.digest({key: str(file), "rounds": 3, "data_dir": place}))
    assert names[0] == names[1] != names[2]


def test_jobs_from_other_weights_are_other_jobs(tmp_path: Path) -> None:
    names = []
    for name, held in (("a", b"1"), ("b", b"1"), ("c", b"2")):
        (tmp_path / f"{name}.safetensors").write_bytes(held)
        names.append(jobs.digest({"initial_weights": str(tmp_path / f"{name}.safetensors")}))
    assert names[0] == names[1] != names[2]
