"""A file of JSON lines that only grows: how far it has got, and back to there after a job was killed."""

import hashlib
import os
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError

_PIECE = 1 << 20

Mark = dict[str, Any]  # {"bytes": length, "sha256": digest of so many bytes}


class GrowingFile:
    """Appends lines, flushed one by one. A half line that a killed process left is cut when it is opened."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(path, len(whole))
        self._sha = hashlib.sha256(whole)
        self._bytes = len(whole)
        self._file = path.open("ab", buffering=0)

    def append(self, text: str) -> None:
        """Write a line, without its end."""
        content = f"{text}\n".encode()
        left = memoryview(content)
        try:
            while left:  # a disk that is almost full takes a part
                left = left[self._file.write(left) :]
        except OSError as error:
            error.filename = self._file.name  # a write that fails does not say of which file
            raise
        self._sha.update(content)
        self._bytes += len(content)

    def mark(self) -> Mark:
        """Mark the end of the file, for :func:`cut`; all lines are on the disk by then, not only with the system."""
        os.fsync(self._file.fileno())
        return {"bytes": self._bytes, "sha256": self._sha.hexdigest()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def cut(path: Path, mark: Mark | None) -> None:
    """Forget what was written after ``mark``, all of it where that is None; UserError as of :func:`check_marked`."""
    if mark is None:
        path.unlink(missing_ok=True)
        return
    check_marked(path, mark)
    os.truncate(path, int(mark["bytes"]))


def check_marked(path: Path, mark: Mark) -> None:
    """UserError where a file does not begin with what it held when it was marked."""
    sha, left = hashlib.sha256(), int(mark["bytes"])
    try:
        with path.open("rb") as file:
            while left and (piece := file.read(min(left, _PIECE))):
                sha.update(piece)
                left -= len(piece)
    except OSError as error:
        raise UserError(f"{path}, which the checkpoint goes on from, cannot be read: {error.strerror}") from None
    if left or sha.hexdigest() != mark["sha256"]:
        raise UserError(
            f"{path} is damaged: {'it is shorter than' if left else 'its sha256 differs from what it was'} when the "
            "checkpoint was written; put a whole copy there, or start the job anew without --resume"
        )
