"""``fedscale_ext.run`` and ``load``: what a script or a notebook gets, sees and is told."""

import json
from pathlib import Path

import pytest

import fedscale_ext
from fedscale_ext.runtime import records

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "plot_job", lambda folder: folder / "plot.png")  # most of a tiny job's time


def test_a_job_gives_its_result_and_shows_how_far_it_is(job_file: Path, capfd: pytest.CaptureFixture[str]):
    result = fedscale_ext.run(job_file, rounds=1)
    assert result["rounds"] == 1 and result.finished
    assert result.path == job_file.parent / "logs" / "tiny" / "logs"
    assert json.loads((result.path / "summary.json").read_text()) == {**result, "log_dir": None} | _drop(result)
    out, err = capfd.readouterr()
    assert out == ""
    assert "round 1/1, 4 clients, 1 model" in err


def _drop(result: fedscale_ext.result.Result) -> dict[str, object]:
    return {}


def test_progress_can_be_silent(job_file: Path, capfd: pytest.CaptureFixture[str]):
    fedscale_ext.run(job_file, rounds=1, progress=False)
    assert capfd.readouterr() == ("", "")
