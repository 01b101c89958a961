"""Checked updates in whole jobs: one bad client costs itself, and the bound of a change's norm is kept."""

import errno
from pathlib import Path
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.tasks.evaluate import Evaluate
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.update_norms import TOO_FAR
from fedscale_ext.util import tensor_files


@pytest.mark.parametrize(
    ("figure", "reason"),
    [
        ({"utility": float("inf")}, "diverged: its utility is not finite"),
        ({"moving_loss": None}, "figure 'loss' is not a finite number in its range"),
        ({"trained_size": 10**6}, "count 'trained' is not as planned"),
    ],
    ids=["utility", "loss", "trained"],
)
def test_a_client_with_an_impossible_figure_fails_alone(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, figure: dict[str, Any], reason: str
) -> None:
    """Its unit's sum must be without it: otherwise all of the unit would be lost with it."""
    plain = MultiModelClient.train

    def train(self: Any, client_data: Any, model: Any, conf: Any) -> dict[str, Any]:
        result = plain(self, client_data, model, conf)
        return {**result, **figure} if conf.client_id == 2 else result

    monkeypatch.setattr(MultiModelClient, "train", train)
    summary = fedscale_ext.run(job_file, rounds=1, num_participants=7, unit_size=7)
    assert summary["clients"]["failed"] == {reason: 1}
    assert summary["clients"]["participations"] == 6


def final(job_file: Path, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, num_participants=7, **keys)
    return load_model(job_file.parent / "logs/tiny/logs/models/global.safetensors")[1]


@pytest.mark.parametrize("cohort_size", [1, 4])
def test_a_wide_bound_changes_nothing_and_a_narrow_one_refuses(job_file: Path, cohort_size: int) -> None:
    free = final(job_file, cohort_size=cohort_size)
    wide = final(job_file, cohort_size=cohort_size, max_update_norm=1e6)
    assert all(bool((free[name] == wide[name]).all()) for name in free)
    with pytest.raises(UserError, match=TOO_FAR):
        final(job_file, cohort_size=cohort_size, max_update_norm=1e-6)


def test_figures_of_a_test_that_cannot_be_right_are_no_figures(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluate, "run", lambda self, worker, header: ({}, {"figures": b"nothing"}))
    summary = fedscale_ext.run(job_file)
    assert summary["faults"]["work units dropped"] == 2  # two tests of the one model
    assert summary["clients"]["untested"] == summary["clients"]["total"]


def test_a_full_disk_ends_the_job_in_a_sentence_and_leaves_the_last_checkpoint_whole(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = tensor_files.write_atomic

    def full(path: Path, *parts: Any) -> None:
        if path.name == "checkpoint-000002.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        plain(path, *parts)

    monkeypatch.setattr(tensor_files, "write_atomic", full)
    with pytest.raises(UserError, match=r"cannot be written \(No space left on device\); make room"):
        fedscale_ext.run(job_file, checkpoint_interval=1)
    monkeypatch.undo()
    checkpoints = job_file.parent / "logs/tiny/logs/checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["checkpoint-000001.safetensors"]
    resumed = fedscale_ext.run(job_file, checkpoint_interval=1, resume=True)
    assert resumed["rounds"] == 2
