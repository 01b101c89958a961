"""Files of a folder whose names have the number of a round."""

import re
from pathlib import Path


def numbered_files(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    """Return (number, path) of the files whose whole name matches, in rising order; none where there is no folder.

    The first group of ``pattern`` is the number. Other files in the folder are left alone.
    """
    paths = folder.iterdir() if folder.is_dir() else ()
    return sorted((int(match[1]), path) for path in paths if (match := pattern.fullmatch(path.name)))


def drop_later(folder: Path, pattern: re.Pattern[str], round: int) -> None:
    """Remove the files of rounds after ``round``, which belong to a course of the job that was left."""
    for number, path in numbered_files(folder, pattern):
        if number > round:
            path.unlink(missing_ok=True)
