"""Two kills of the matrix with the real command; evals/reliability/matrix.py runs all of them."""

import subprocess
import sys
from pathlib import Path

import pytest
from job_results import result

import fedscale_ext
from evals.reliability import cells, engines, matrix
from evals.reliability.soak import slope
from fedscale_ext.util.package import PACKAGE

KILLS = {"executor 2": [("training", 1)], "aggregator": [("checkpoint_rename", 2)]}


@pytest.mark.slow  # a quarter of a minute
def test_a_supervised_job_whose_processes_are_killed_equals_an_undisturbed_one(job_file: Path, tmp_path: Path) -> None:
    keys = {"rounds": 3, "model": "cnn_small", "time_stamp": "run"}
    fedscale_ext.run(job_file, job_name="undisturbed", **keys)
    undisturbed = cells.Ended(result(tmp_path / "logs" / "undisturbed" / "run"), b"", {}, 0.0)
    killed = cells.run(job_file, tmp_path, "killed", KILLS, **keys)
    cells.check(undisturbed, killed, KILLS)
    assert killed.restarts["aggregator"] == 1


def test_a_cell_that_differs_is_not_called_equal() -> None:
    one = cells.Ended({"rounds": [{"train_loss": 1.0}], "models": {}}, b"", {}, 1.0)
    other = cells.Ended({"rounds": [{"train_loss": 1.0000000000000002}], "models": {}}, b"", {"aggregator": 1}, 1.0)
    with pytest.raises(AssertionError):
        cells.check(one, other, {"aggregator": [("aggregate", 1)]})
    with pytest.raises(AssertionError, match="aggregator was not restarted"):
        cells.check(one, one, {"aggregator": [("aggregate", 1)]})


def test_every_row_of_the_matrix_names_a_step() -> None:
    from faults.steps import STEPS

    assert {step for _, _, step in matrix.rows()} <= STEPS.keys()
    assert len({row[:2] for row in matrix.rows()}) == len(matrix.rows()) == 28
    text = matrix.page([("aggregator", "register", 1, 1), ("executor 1", "unit received", 1, 2)], 7.2)
    assert "**2 of 3** jobs" in text and "| executor 1 | unit received | 1 of 2 |" in text


def test_the_slope_is_per_100_rounds() -> None:
    assert slope([(1, 5.0), (101, 7.0), (201, 9.0)]) == pytest.approx(2.0)
    assert slope([(50, 5.0), (60, 5.0)]) == pytest.approx(0.0)


def test_engines_whose_digests_differ_are_not_called_equal() -> None:
    one, other = engines.Ran("one machine", "nothing", "ab" * 32, 3.0), engines.Ran("ray", "a node", "cd" * 32, 4.0)
    assert "All digests are equal" in engines.page(9, [one, one], 0.0)
    text = engines.page(9, [one, other], 0.0)
    assert "The digests DIFFER" in text and "| ray | a node | 4 | `cdcdcdcdcdcdcdcd` |" in text


def test_without_guards_nothing_is_signed_or_checked() -> None:
    """In a process of its own, as the guards do not come back."""
    program = """
from evals.reliability import bare
from fedscale_ext.server import grpc_server
from fedscale_ext.tasks import train
from fedscale_ext.tasks.answers import update_checks
from fedscale_ext.transport import executor_link
bare.strip()
assert executor_link.SignedChannel("channel", "signer", 1, 256) == "channel"
assert grpc_server.SignatureCheck().intercept_service(lambda details: details, "call") == "call"
assert update_checks.fault_in_state({}, {"w": 1}) is None
assert train.check_training_report() is update_checks.check_training_report() is grpc_server.check_answer() is None
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PACKAGE.parent)
