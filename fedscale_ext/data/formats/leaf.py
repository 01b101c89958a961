"""LEAF's JSON files."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape
from fedscale_ext.data.formats.source import MAX_JSON, OTHER_FORMAT, Sample, Source, as_bytes
from fedscale_ext.data.layout.labels import whole_numbers
from fedscale_ext.data.wording import counted, quoted
from fedscale_ext.util.reading import read_json


def leaf_files(path: Path) -> list[tuple[Path, bool | None]]:
    """LEAF's files at ``path``, and whether they hold test samples; None: not known."""
    if path.is_file():
        return [(path, None)]
    parts = [(path / part, part == "test") for part in ("train", "test") if (path / part).is_dir()]
    files: list[tuple[Path, bool | None]] = [
        (file, test) for part, test in parts for file in sorted(part.glob("*.json"))
    ] or [(file, None) for file in sorted(path.glob("*.json"))]
    if not files:
        raise UserError(f"{path} holds no .json files (nor do train and test below it)")
    return files


def has_leaf_files(folder: Path) -> bool:
    """Whether json files lie where :func:`leaf_files` reads them."""
    return any(next(folder.glob(pattern), None) for pattern in ("train/*.json", "test/*.json", "*.json"))


@dataclass
class LeafSource(Source):
    """LEAF's JSON, see ``importers.import_leaf``."""

    path: Path
    kind: str = "LEAF JSON"

    def __post_init__(self) -> None:
        self._empty: list[str] = []

    def notes(self) -> list[str]:
        """See :class:`Source`."""
        if not self._empty:
            return []
        have = "has" if len(self._empty) == 1 else "have"
        return [f"{counted(len(self._empty), 'user')} {have} no samples in a file: {quoted(self._empty)}"]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`Source`."""
        for file, test in leaf_files(self.path):
            try:
                content = read_json(file, MAX_JSON, deepest=None)
                users, user_data = list(content["users"]), content["user_data"]
                records = [(str(user), user_data[user]["x"], user_data[user]["y"]) for user in users]
            except (ValueError, KeyError, TypeError, OSError) as error:
                raise UserError(
                    f"{file} is not LEAF JSON (users, user_data with x and y): {error!r}; {OTHER_FORMAT}"
                ) from error
            for user, x, y in records:
                labels = whole_numbers(y, f"labels of user {user!r} in {file}")
                if not isinstance(x, list) or len(x) != len(labels):
                    numbers = len(x) if isinstance(x, list) else "no list of"
                    raise UserError(
                        f"user {user!r} in {file} has {numbers} samples x and {len(labels)} labels y: correct the file"
                    )
                if not len(labels):
                    self._empty.append(user)
                    continue
                try:
                    flat = np.array(x, dtype=np.float32).reshape(len(labels), -1)
                except (ValueError, TypeError, OverflowError) as error:
                    raise UserError(f"user {user!r} in {file}: x is not one list of numbers per label") from error
                side = round(flat.shape[1] ** 0.5)
                if side * side != flat.shape[1]:
                    raise UserError(f"user {user!r} in {file}: {flat.shape[1]} numbers are no square image")
                check_shape((1, side, side))
                pixels = as_bytes(flat, f"x of user {user!r} in {file}").reshape(-1, 1, side, side)
                for row, (image, label) in enumerate(zip(pixels, labels.tolist(), strict=True)):
                    yield Sample(image, label, user, test, f"sample {row} of user {user!r} in {file} (counted from 0)")
