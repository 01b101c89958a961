"""Files whose names have a number are listed and dropped by it."""

import re
from pathlib import Path

from fedscale_ext.util.numbered_files import drop_later, numbered_files

PATTERN = re.compile(r"(?:a|b)-(\d+)\.txt")


def test_files_are_listed_by_their_numbers_and_others_left_alone(tmp_path: Path) -> None:
    for name in ("a-10.txt", "a-9.txt", "b-9.txt", "c-1.txt", "a-1.txt.part"):
        (tmp_path / name).touch()
    listed = [(number, path.name) for number, path in numbered_files(tmp_path, PATTERN)]
    assert listed == [(9, "a-9.txt"), (9, "b-9.txt"), (10, "a-10.txt")]
    drop_later(tmp_path, PATTERN, 9)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1.txt.part", "a-9.txt", "b-9.txt", "c-1.txt"]


def test_a_folder_that_is_not_there_has_none(tmp_path: Path) -> None:
    assert numbered_files(tmp_path / "none", PATTERN) == []
    drop_later(tmp_path / "none", PATTERN, 0)
