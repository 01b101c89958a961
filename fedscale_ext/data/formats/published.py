"""Data sets that come as several files in one folder, named as their authors name them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, ClassVar

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.source import Source
from fedscale_ext.data.registry import known
from fedscale_ext.data.wording import quoted
from fedscale_ext.util.reading import open_plain


class Published(Source):
    """Such a folder as a source; a subclass says how to tell it, and reads its samples.

    ``parts`` are the files, of which the first tells the folder; each has one of the ``endings``. ``subfolders``: where
    below ``path`` they may lie, as the archive or torchvision unpacks them. ``owners``: data sets by the names of
    folders, where several data sets have files of these names.
    """

    kind: str
    parts: ClassVar[tuple[str, ...]]
    endings: ClassVar[tuple[str, ...]] = ("",)
    subfolders: ClassVar[tuple[str, ...]] = ()
    owners: ClassVar[Mapping[str, str]] = {}

    def __init__(self, path: Path, data_set: str = "") -> None:
        self.path, self.data_set = path, data_set

    @classmethod
    def locate(cls, path: Path) -> list[Path]:
        """Find the folders of such files: ``path`` and those below it."""
        signs = [f"{cls.parts[0]}{ending}" for ending in cls.endings]
        folders = (path, *(path / name for name in cls.subfolders))
        return [folder for folder in folders if any((folder / sign).is_file() for sign in signs)]

    def folder(self) -> Path:
        """Return the folder of the data set's files; UserError where there is none, or only another data set's."""
        folders = self.locate(self.path)
        if not folders:
            raise UserError(f"{self.path} holds no {self.kind}: it must have the file {self.parts[0]}{self.endings[0]}")
        return folder_of(self.data_set, [(folder, self._owner(folder)) for folder in folders], self.path)

    def _owner(self, folder: Path) -> str | None:
        """The data set that a folder's name tells, None where it tells none."""
        parts = folder.absolute().parts
        return self.owners.get(parts[-2] if parts[-1] == "raw" else parts[-1])

    def file(self, part: str) -> Path:
        """Return the file of one of the ``parts``: the first of the ``endings`` that exists."""
        folder = self.folder()
        named = [folder / f"{part}{ending}" for ending in self.endings]
        return next((path for path in named if path.exists()), named[0])

    def files(self) -> list[Path]:
        """Return the existing files of all ``parts``."""
        return [path for path in map(self.file, self.parts) if path.is_file()]


def folder_of(data_set: str, folders: Sequence[tuple[Path, str | None]], path: Path) -> Path:
    """Choose the folder of a data set.

    Args:
        data_set: The data set that is asked for; a name of one's own fits any folder, if there is one alone.
        folders: Folders below ``path``, each with the data set whose it is (None: nothing tells).
        path: What the user named.

    Raises:
        UserError: If the folders are other data sets', or several and none is the data set's.

    """
    entry = known(data_set)
    owned = [(folder, owner) for folder, owner in folders if owner is not None]
    for folder, owner in owned:
        if entry is not None and owner == entry.name:
            return folder
    if not owned or (len(folders) == 1 and entry is None):
        return folders[0][0]
    names = quoted([str(owner) for _, owner in owned])
    if entry is not None and len(folders) == len(owned):
        raise UserError(f"{path} holds {names} and not {entry.name}: name another folder or data set")
    several = quoted([str(folder) for folder, _ in folders])
    raise UserError(f"{path} does not tell which files are {data_set or 'meant'}: name one of the folders {several}")


def open_part(path: Path, most: int) -> BinaryIO:
    """Open a file of at most ``most`` bytes; UserError where it is missing or cannot be read."""
    try:
        return open_plain(path, most)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): unpack the archive again") from error
