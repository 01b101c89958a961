"""What each of a job's models is worth agrees with the job's own test."""

from pathlib import Path

import numpy as np
import pytest

import fedscale_ext
from evals.fedtrans import each_model
from evals.paper.data import data_set
from evals.paper.jobs import client_accuracies
from fedscale_ext.metrics.job_folder.round_records import read_records


def test_models_are_worth_to_those_served_what_the_job_says(
    session_job_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grow = {"fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9}
    done = fedscale_ext.run(session_job_file, job_name="each", method="fedtrans", rounds=4, num_participants=6, **grow)
    log_dir = Path(done["log_dir"])
    last = read_records(log_dir / "metrics.jsonl")[-1].evaluation
    assert last is not None and len(set(last.serve)) > 1
    data = data_set(log_dir)
    correct = {key: each_model.correct(log_dir / "models" / f"{key}.safetensors", data) for key in set(last.serve)}
    accuracies = [correct[key][client] for client, key in enumerate(last.serve)]
    np.testing.assert_array_equal(accuracies, client_accuracies(log_dir))
    capsys.readouterr()
    each_model.main([str(log_dir)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"| model | MMACs | all ({len(last.serve)}) | served m0 (")
    table = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in lines[4:] if line}
    assert list(table)[:2] == ["m0", "m1"]
    assert list(table)[-3:] == ["served", "random, of those that fit", "oracle, of those that fit"]
    assert float(table["served"][1]) == pytest.approx(100 * done["accuracy"]["mean"], rel=1e-3)
    assert float(table["oracle, of those that fit"][1]) >= float(table["served"][1])


def test_the_oracle_takes_the_best_model_that_a_client_affords() -> None:
    worth = np.array([[50.0, 20.0, 80.0, np.nan], [70.0, 60.0, 40.0, np.nan], [90.0, 90.0, 10.0, np.nan]])
    serves = np.array([[False, True, False, True], [True, False, True, False], [False] * 4])
    rows = each_model.assigned(worth, [10.0, 20.0, 40.0], serves, np.array([20.0, 5.0, 100.0, 100.0]))
    np.testing.assert_allclose(rows["served"], [70, 20, 40, np.nan])
    np.testing.assert_allclose(rows["random, of those that fit"], [60, 20, 130 / 3, np.nan])
    np.testing.assert_allclose(rows["oracle, of those that fit"], [70, 20, 80, np.nan])
    assert list(each_model.assigned(worth, [10.0, 20.0, 40.0], serves, None)) == ["served"]


def test_what_is_no_finished_job_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no summary\.json: name the log folder of a finished job"):
        each_model.main([str(tmp_path)])
