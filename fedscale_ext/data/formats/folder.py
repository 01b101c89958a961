"""A tree of pictures as samples: ``client/label/*.png``, or ``label/*.png`` without clients."""

import os
import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.source import OTHER_FORMAT, Sample, Source
from fedscale_ext.data.importing.pictures import PictureReader
from fedscale_ext.data.layout.labels import number_names
from fedscale_ext.data.registry import known
from fedscale_ext.data.wording import counted, listed, quoted

IMAGE_ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"}


@dataclass
class FolderSource(Source):
    """A tree of image files, see ``importers.import_folder``. Hidden files and folders are left out."""

    path: Path
    data_set: str
    by_client: bool
    sides: Sequence[int] | None = None
    kind: str = "folder"

    def __post_init__(self) -> None:
        self._pictures = PictureReader(known(self.data_set), self.sides)

    @property
    def _layout(self) -> str:
        return "client/label/picture" if self.by_client else "label/picture"

    def _files(self) -> list[tuple[str, str, Path]]:
        """(client, label's name, file) of each image, sorted."""
        files = pictures_in(self.path, "*/*/*" if self.by_client else "*/*")
        if not files:
            layout = "client/label/*.png" if self.by_client else "label/*.png"
            other = "with a partition, label/*.png" if self.by_client else "without a partition, client/label/*.png"
            leaf = "for LEAF, name the folder of its .json files; " if next(self.path.rglob("*.json"), None) else ""
            raise UserError(f"{self.path} holds no images as {layout} ({other} is read); {leaf}{OTHER_FORMAT}")
        return [(path.parent.parent.name if self.by_client else "", path.parent.name, path) for path in files]

    def _look_around(self) -> list[str]:
        """What of the tree is left out, a sentence each."""
        depth = 3 if self.by_client else 2
        others: Counter[str] = Counter()
        hidden, elsewhere, empty = 0, [], []
        for folder, folders, files in os.walk(self.path):
            relative = Path(folder).relative_to(self.path)
            pictures = 0
            for name in files:
                if any(part.startswith(".") for part in (*relative.parts, name)):
                    hidden += 1
                elif Path(name).suffix.lower() not in IMAGE_ENDINGS:
                    others[Path(name).suffix.lower() or "none"] += 1
                elif len(relative.parts) + 1 == depth:
                    pictures += 1
                else:
                    elsewhere.append(str(relative / name))
            if not any(part.startswith(".") for part in relative.parts) and (
                (len(relative.parts) + 1 == depth and not pictures)
                or (0 < len(relative.parts) < depth - 1 and not folders)
            ):
                empty.append(str(relative))
        notes = []
        if others:
            endings = [f"{number} of {ending}" for ending, number in others.most_common()]
            what = counted(others.total(), "file with another ending", "files with other endings")
            notes.append(f"left out: {what} ({listed(endings)})")
        if elsewhere:
            what = counted(len(elsewhere), "picture that is", "pictures that are")
            notes.append(f"left out: {what} not at {self._layout} ({quoted(sorted(elsewhere), 3)})")
        if hidden:
            notes.append(f"left out: {counted(hidden, 'hidden file')}")
        if empty:
            what = counted(len(empty), "folder holds", "folders hold")
            notes.append(f"{what} no pictures: {quoted(sorted(empty))}")
        return notes

    def notes(self) -> list[str]:
        """See :class:`source.Source`."""
        return [*super().notes(), *self._pictures.notes()]

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`."""
        files = self._files()
        numbering = number_names({label for _, label, _ in files}, known(self.data_set), "label folders")
        self.label_names = numbering.names
        self._notes = [*numbering.notes, *self._look_around()]
        self._outline([([numbering.label[label] for _, label, _ in files], None)])
        for client, label, path in files:
            yield Sample(self._pictures.read(path), numbering.label[label], client, None, str(path))


def pictures_in(folder: Path, pattern: str) -> list[Path]:
    """Return the image files below a folder that match a pattern, sorted; none that are hidden."""
    files = (path for path in folder.glob(pattern) if path.suffix.lower() in IMAGE_ENDINGS and path.is_file())
    parts = {path: path.relative_to(folder).parts for path in files}
    visible = [path for path in parts if not any(part.startswith(".") for part in parts[path])]
    return sorted(visible, key=lambda path: [_natural(part) for part in parts[path]])


def _natural(text: str) -> list[tuple[int, int | str]]:
    """Return a sort key that puts "2" before "10"."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts]
