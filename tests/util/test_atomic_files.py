"""Files that are either whole or absent."""

import errno
import os
from pathlib import Path

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.util import atomic_files
from fedscale_ext.util.atomic_files import refusing, replacing, write_atomic


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "f"
    write_atomic(path, "old")

    def fail(*_args: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr(atomic_files.os, "fsync", fail)
    with pytest.raises(OSError, match=r"disk full: .*/f'"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_parts_follow_each_other_in_a_folder_that_is_made(tmp_path: Path):
    path = tmp_path / "deep" / "f"
    write_atomic(path, "\u00fc", b"ber", memoryview(b" all"))
    assert path.read_text(encoding="utf-8") == "\u00fcber all"
    assert list(path.parent.iterdir()) == [path]


def test_what_utf_8_cannot_write_stands_as_its_escape(tmp_path: Path):
    write_atomic(tmp_path / "f", os.fsdecode(b"caf\xe9"))
    assert (tmp_path / "f").read_text() == r"caf\udce9"


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_file_has_the_permissions_that_the_mask_leaves(tmp_path: Path, mode: int):
    before = os.umask(0o022)
    try:
        write_atomic(tmp_path / "f", "secret", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == mode & ~0o022


def test_an_error_in_the_block_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(ValueError, match="of the block"), replacing(path) as temporary:
        temporary.write_text("half")
        raise ValueError("of the block")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_of_another_file_keeps_its_name(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="source"), replacing(tmp_path / "f"):
        (tmp_path / "source").read_text()


def test_a_folder_that_is_missing_is_named_by_the_file(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"missing/f'$"), replacing(tmp_path / "missing" / "f"):
        pass


def test_a_refusal_names_the_file(tmp_path: Path):
    with pytest.raises(UserError, match=r"missing/f cannot be written: No such file"), refusing(tmp_path / "missing/f"):
        (tmp_path / "missing" / "f").write_text("")
