"""Locks of files: one holder at a time, also while the file is removed, and none on file systems without them."""

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from fedscale_ext.util import locks


def test_a_lock_has_one_holder_also_when_its_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lock"
    with locks.lock(path):
        with pytest.raises(BlockingIOError):
            locks.lock(path)
        path.unlink()
    flock = fcntl.flock

    def removed_meanwhile(file: object, how: int) -> None:
        path.unlink()
        monkeypatch.setattr(fcntl, "flock", flock)
        flock(file, how)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", removed_meanwhile)
    with locks.lock(path) as file:
        assert os.path.samestat(os.fstat(file.fileno()), path.stat())


def test_the_end_of_a_lock_leaves_the_file_of_the_next_holder(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lock"
    path.parent.mkdir()
    with locks.removed_at_end(locks.lock(path), path):
        shutil.rmtree(path.parent)
        path.parent.mkdir()
        next_holder = locks.lock(path)
    with next_holder, pytest.raises(BlockingIOError):
        locks.lock(path)
    with locks.removed_at_end(locks.lock(path), path):
        pass
    assert not path.exists()


@pytest.mark.parametrize(("number", "held"), [(errno.EACCES, True), (errno.ENOSYS, False), (errno.ENOLCK, False)])
def test_a_file_system_without_locks_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, held: bool
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    if held:
        with pytest.raises(BlockingIOError):
            locks.lock(tmp_path / "lock")
    else:
        locks.lock(tmp_path / "lock").close()
