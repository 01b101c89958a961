"""The run that a start writes into, after all checks of one to resume, and when there is nothing left to do."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import resumption
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.resumption import checked_run, has_finished, resume_keys

from .test_runs import config, last_run, write_run

ROUND = {"resume": False, "resume_from": 3}
LAST = {"resume": True, "resume_from": None}


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs whose data were compared with the job's."""
    runs: list[Path] = []
    monkeypatch.setattr(resumption, "refuse_changed_data", lambda config, run, display: runs.append(run))
    return runs


def finished_run(tmp_path: Path) -> Job:
    """The record of a run that has done its five rounds and has a checkpoint."""
    last: Job = last_run(tmp_path)
    last.status, last.round = "finished", {"round": 5}
    write_run(last.log_dir, rounds=5)
    return last


def checked(tmp_path: Path, last: Job | None, rounds: int = 5, **how: Any) -> tuple[tuple[str, str] | None, str]:
    """The run that was chosen, and the notices about it."""
    err = StringIO()
    display = Display(Console(quiet=True), Console(file=err, width=500))
    keys = {"time_stamp": "new"} if last is None else {}
    return checked_run(config(tmp_path, rounds=rounds, **keys), last, [], display, **how), err.getvalue()


def test_a_new_run_is_compared_with_nothing(tmp_path: Path, compared: list[Path]) -> None:
    assert checked(tmp_path, None, resume=False, resume_from=None) == ((str(tmp_path / "here"), "new"), "")
    assert compared == []


def test_a_run_with_all_its_rounds_is_continued_for_more_rounds_or_from_an_earlier_one(
    tmp_path: Path, compared: list[Path]
) -> None:
    last = finished_run(tmp_path)
    run, notices = checked(tmp_path, last, **LAST)
    assert run is None and "job fake has finished its 5 rounds" in notices
    here = (last.log_path, last.time_stamp)
    assert checked(tmp_path, last, 6, **LAST) == (here, "") and checked(tmp_path, last, **ROUND) == (here, "")
    assert compared == [last.log_dir] * 3


def test_data_are_compared_unless_a_sweep_has_compared_them(tmp_path: Path, compared: list[Path]) -> None:
    last = finished_run(tmp_path)
    assert checked(tmp_path, last, 6, **LAST, compare_data=False)[0] and compared == []


def test_other_settings_are_told_though_the_run_has_finished(tmp_path: Path, compared: list[Path]) -> None:
    last = finished_run(tmp_path)
    (last.log_dir / "header.json").write_text('{"config": {"learning_rate": 0.5}}')
    with pytest.raises(UserError, match=r"job fake ran with other settings: .*learning_rate was 0\.5 and is 0\.05"):
        checked(tmp_path, last, **LAST)
    assert compared == []


def test_only_the_run_that_is_resumed_can_have_finished(tmp_path: Path) -> None:
    last, notices = finished_run(tmp_path), []
    assert not has_finished(config(tmp_path, rounds=5), last, last.log_dir.with_name("another"), notices.append)
    assert not has_finished(config(tmp_path, rounds=6), last, last.log_dir, notices.append) and notices == []
    assert has_finished(config(tmp_path, rounds=5), last, last.log_dir, notices.append)
    assert notices[0].startswith("job fake has finished its 5 rounds")


def test_the_aggregator_is_told_where_it_begins() -> None:
    assert resume_keys(False, None) == {} and resume_keys(**LAST) == {"resume": True}
    assert resume_keys(**ROUND) == resume_keys(True, 3) == {"resume_from": 3}
