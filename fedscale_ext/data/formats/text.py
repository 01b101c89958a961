"""Text by speaker as windows of symbols with the one that follows: LEAF's Shakespeare, and texts as they are.

A sample is the numbers of 80 symbols, [1, 1, 80], and its label that of the next one, as in LEAF. FedorAS's
task knows 90 symbols; here they are the characters of both published forms of the data set, number 0 for every other
character, and one that is left over.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.sample_files import VALUES
from fedscale_ext.data.formats.leaf import leaf_files
from fedscale_ext.data.formats.source import MAX_JSON, OTHER_FORMAT, Sample, Source
from fedscale_ext.data.registry import KnownDataSet, known
from fedscale_ext.util.reading import read_json

CHARACTERS = "\n\r !\"#$%&'()*,-./0123456789:;>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz}"
"""By their numbers less 1."""

_NUMBER = np.zeros(128, dtype=np.uint8)
_NUMBER[[ord(one) for one in CHARACTERS]] = np.arange(1, len(CHARACTERS) + 1)


def numbers(text: str) -> np.ndarray:
    """Return the number of each character, uint8 [len(text)]; 0 for unknown ones."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return np.where(codes < len(_NUMBER), _NUMBER[np.minimum(codes, len(_NUMBER) - 1)], 0).astype(np.uint8)


@dataclass
class TextSource(Source):
    """LEAF's JSON with strings, or JSON as {speaker: text}; see ``importers.import_text``."""

    path: Path
    data_set: str
    stride: int | None = None
    kind: str = "text"

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; by speaker."""
        entry = known(self.data_set)
        if entry is None or not entry.text:
            raise UserError(f"{self.path} holds text: import it as shakespeare")
        if self.stride is not None and self.stride < 1:
            raise UserError(f"a stride of {self.stride} goes nowhere: give 1 or more")
        some: dict[str, bool] = {}  # whether a speaker has a window
        for file, test in leaf_files(self.path):
            content = _read(file)
            leaf = "user_data" in content
            for speaker, raw in _by_speaker(content, file):
                windows = self._published(raw, speaker, file, entry, test) if leaf else self._cut(raw, entry)
                some.setdefault(speaker, False)
                for x, label in windows:
                    some[speaker] = True
                    yield Sample(x.astype(VALUES).reshape(entry.shape), label, speaker, test)
        self.left_out = sum(not has for has in some.values())

    def _cut(self, text: str, entry: KnownDataSet) -> Iterator[tuple[np.ndarray, int]]:
        """Windows of a text, one ``stride`` after the other."""
        length = entry.shape[-1]
        stride = length if self.stride is None else self.stride
        if stride < length:
            raise UserError(
                f"a stride of {stride} would put the same symbols into training and test windows of a text: give "
                f"{length} or more"
            )
        symbols = numbers(text)
        for begin in range(0, len(symbols) - length, stride):
            yield symbols[begin : begin + length], int(symbols[begin + length])

    def _published(
        self, raw: Any, speaker: str, file: Path, entry: KnownDataSet, test: bool | None
    ) -> Iterator[tuple[np.ndarray, int]]:
        """LEAF's own windows; with a ``stride``, one of so many."""
        x, y = raw
        length, stride = entry.shape[-1], 1 if self.stride is None else self.stride
        if test is None and stride < length:
            raise UserError(
                f"{file} is not split and LEAF's windows overlap: name the folder of its train and test folders, or "
                f"give a stride of {length} or more"
            )
        for window, label in zip(x[::stride], y[::stride], strict=True):
            if not (isinstance(window, str) and isinstance(label, str) and len(window) == length and len(label) == 1):
                raise UserError(f"user {speaker!r} in {file}: a window must be {length} characters, its label one")
            yield numbers(window), int(numbers(label)[0])


def _read(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file, MAX_JSON, deepest=None)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise UserError(
            f"{file} is neither LEAF JSON (users, user_data with x and y) nor {{speaker: text}}; {OTHER_FORMAT}"
        )
    return content


def _by_speaker(content: dict[str, Any], file: Path) -> list[tuple[str, Any]]:
    """Each speaker with its text, or its lists x and y."""
    try:
        if "user_data" not in content:
            if not all(isinstance(text, str) for text in content.values()):
                raise TypeError("texts must be strings")
            return list(content.items())
        data = content["user_data"]
        speakers = [(str(user), (data[user]["x"], data[user]["y"])) for user in content["users"]]
        for user, (x, y) in speakers:
            if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
                raise ValueError(f"x and y of {user!r} are not lists of one length")
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{file} is neither LEAF JSON (users, user_data with x and y) nor {{speaker: text}}: {error}; "
            f"{OTHER_FORMAT}"
        ) from error
    return speakers
