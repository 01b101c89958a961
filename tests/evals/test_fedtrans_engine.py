"""The engine of FedTrans's tables and figures: which jobs it runs, does not run again, and writes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fedtrans_script import EXPERIMENT, call, rows_of

from evals.fedtrans.arms import LARGEST
from evals.fedtrans.settings import PAPER
from evals.paper import jobs, output
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.job_keys import WeightsOf
from evals.paper.runs import Records
from fedscale_ext.metrics.job_folder.model_files import load_model

NOTE = "Seed 1 has other data."


@pytest.fixture(scope="module")
def done(places: dict[str, Path]) -> list[dict[str, Any]]:
    assert call(EXPERIMENT, places, "--seeds", "1", "2") == 1  # a method is missing
    return rows_of(places["results"])


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
        records.tables["try_smoke"],
        notes=[NOTE],
        row_notes={"FedTrans": NOTE, "gone": NOTE},
        incomparable={"FedTrans": "is older", "gone": "is gone"},
    )
    records.save()
    assert call(EXPERIMENT, elsewhere, "--seeds", "3", "1", "--arms", "FedTrans") == 0
    table = Records.load(tmp_path).tables["try_smoke"]
    assert table.notes == [NOTE] and table.row_notes == {"FedTrans": NOTE}
    assert table.incomparable == {"FedTrans": "is older"}
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
    third = replace(
        second, name="third", columns=["x"], rows=lambda runs: [replace(run, figures={"x": 3.0}) for run in runs]
    )
    for experiment in (replace(EXPERIMENT, arms=EXPERIMENT.arms[:1]), second, third):
        assert call(experiment, {**places, "results": tmp_path}) == 0
    records = Records.load(tmp_path)
    (line,) = records.runs.values()
    assert line.figures["x"] == 3.0 and line.figures["models"] > 1  # each table's columns
    assert [list(row.runs) for table in records.tables.values() for row in table.rows] == [[line.id]] * 3


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
    headers = [json.loads(path.read_text()) for path in places["runs"].glob("logs/fedavg_*_1/run/header.json")]
    assert {one["config"]["capacity_model"] for one in headers} == {PAPER.base_model}
    for one in headers:
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
            weights = str(Path(config["model"]).with_name("m2.safetensors"))
    assert first_loss.keys() == {None, weights} and first_loss[weights] < first_loss[None] - 0.3


def test_a_model_that_is_set_goes_to_the_job_that_others_have_theirs_from(
    places: dict[str, Path], tmp_path: Path, done: Any
) -> None:
    elsewhere = {**places, "results": tmp_path, "runs": tmp_path / "runs"}
    assert call(EXPERIMENT, elsewhere, "--arms", "FedTrans", "largest", "--set", "model=nasbench201_2x") == 0
    (first,) = (tmp_path / "runs").glob("logs/fedtrans_*/run/header.json")
    (baseline,) = (tmp_path / "runs").glob("logs/fedavg_*/run/header.json")
    assert json.loads(first.read_text())["config"]["model"] == "nasbench201_2x"
    config = json.loads(baseline.read_text())["config"]
    assert config["capacity_model"] == "nasbench201_2x" and config["model"].endswith(".json")
