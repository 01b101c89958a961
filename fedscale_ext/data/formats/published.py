"""Data sets that come as several files in one folder, named as their authors name them."""

from pathlib import Path
from typing import BinaryIO, ClassVar

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.source import Source
from fedscale_ext.util.reading import open_plain


class Published(Source):
    """Such a folder as a source; a subclass says how to tell it, and reads its samples.

    ``parts`` are the files, of which the first tells the folder; each has one of the ``endings``. ``subfolders``: where
    below ``path`` they may lie, as the archive or torchvision unpacks them.
    """

    kind: str
    parts: ClassVar[tuple[str, ...]]
    endings: ClassVar[tuple[str, ...]] = ("",)
    subfolders: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def locate(cls, path: Path) -> Path | None:
        """Find the folder of the files: ``path`` or one below it; None where there is none."""
        signs = [f"{cls.parts[0]}{ending}" for ending in cls.endings]
        folders = (path, *(path / name for name in cls.subfolders))
        return next((folder for folder in folders if any((folder / sign).is_file() for sign in signs)), None)

    def folder(self) -> Path:
        """Return the folder of the files; UserError where there is none."""
        folder = self.locate(self.path)
        if folder is None:
            raise UserError(f"{self.path} holds no {self.kind}: it must have the file {self.parts[0]}{self.endings[0]}")
        return folder

    def file(self, part: str) -> Path:
        """Return the file of one of the ``parts``: the first of the ``endings`` that exists."""
        folder = self.folder()
        named = [folder / f"{part}{ending}" for ending in self.endings]
        return next((path for path in named if path.exists()), named[0])

    def files(self) -> list[Path]:
        """Return the existing files of all ``parts``."""
        return [path for path in map(self.file, self.parts) if path.is_file()]


def open_part(path: Path, most: int) -> BinaryIO:
    """Open a file of at most ``most`` bytes; UserError where it is missing or cannot be read."""
    try:
        return open_plain(path, most)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): unpack the archive again") from error
