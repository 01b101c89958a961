"""CIFAR-10 and CIFAR-100 in their binary versions, which hold bytes and nothing that could be executed."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.published import folder_of
from fedscale_ext.data.formats.source import Sample, Source
from fedscale_ext.data.registry import canonical
from fedscale_ext.util.reading import MEGA, open_plain

_PIXELS = 3 * 32 * 32
_MOST = 512 * MEGA  # bytes of a file
_TRAIN10 = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
# folder: its training files, its test file, bytes of labels before a record's pixels (the last one counts)
_LAYOUTS = {
    "cifar-10-batches-bin": (_TRAIN10, "test_batch.bin", 1),
    "cifar-100-binary": (("train.bin",), "test.bin", 2),
}
_PICKLED = {"cifar-10-batches-py": "cifar-10-batches-bin", "cifar-100-python": "cifar-100-binary"}
_OWNER = {"cifar-10-batches-bin": "cifar10", "cifar-100-binary": "cifar100"}
_ARCHIVE = {"cifar-10-batches-bin": "cifar-10-binary.tar.gz", "cifar-100-binary": "cifar-100-binary.tar.gz"}


def is_cifar(folder: Path) -> bool:
    """Whether a folder, or one in it, has the name of an unpacked CIFAR archive."""
    names = {*_LAYOUTS, *_PICKLED}
    return folder.name in names or any((folder / name).is_dir() for name in names)


@dataclass
class CifarSource(Source):
    """The unpacked binary archive, or the folder that it lies in; see ``importers.import_cifar``."""

    path: Path
    data_set: str
    kind: str = "CIFAR binary"

    def _folder(self) -> Path:
        folders = [
            (folder, _OWNER[folder.name])
            for folder in (self.path, *(self.path / name for name in _LAYOUTS))
            if folder.name in _LAYOUTS and folder.is_dir()
        ]
        owners = [owner for _, owner in folders]
        for name, binary in _PICKLED.items():
            asked = _OWNER[binary] == canonical(self.data_set) and _OWNER[binary] not in owners
            if (asked or not folders) and (self.path.name == name or (self.path / name).is_dir()):
                raise UserError(
                    f"{self.path} holds {name}, whose files are pickles and are not read: get the binary version "
                    f"({_ARCHIVE[binary]} from the same page) and give its folder {binary}"
                )
        if folders:
            return folder_of(self.data_set, folders, self.path)
        raise UserError(f"{self.path} holds no CIFAR: it must have the folder {' or '.join(_LAYOUTS)}")

    def samples(self) -> Generator[Sample, None, None]:
        """See :class:`source.Source`; the official split is kept."""
        folder = self._folder()
        train, test, labels = _LAYOUTS[folder.name]
        files = [(folder / name, False) for name in train] + [(folder / test, True)]
        size = labels + _PIXELS
        counts = [_records(path, size) for path, _ in files]
        self._outline((_labels(path, size, labels), is_test) for path, is_test in files)
        for (path, is_test), count in zip(files, counts, strict=True):
            with open_plain(path, _MOST) as file:
                for number in range(count):
                    record = np.frombuffer(file.read(size), np.uint8)
                    if len(record) != size:
                        raise UserError(f"{path} is cut off after {number} pictures: unpack the archive again")
                    where = f"picture {number} (counted from 0) of {path}"
                    yield Sample(record[labels:].reshape(3, 32, 32), int(record[labels - 1]), "", is_test, where)


def _records(path: Path, size: int) -> int:
    """Number of records of ``size`` bytes in a file."""
    try:
        with open_plain(path, _MOST) as file:
            whole, rest = divmod(file.seek(0, 2), size)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): unpack the archive again") from error
    if rest or not whole:
        raise UserError(f"{path} is no whole number of pictures of {size} bytes: unpack the archive again")
    return whole


def _labels(path: Path, size: int, labels: int) -> np.ndarray:
    """The last of the ``labels`` bytes before each record's pixels."""
    with open_plain(path, _MOST) as file:
        return np.frombuffer(file.read(), np.uint8).reshape(-1, size)[:, labels - 1]
