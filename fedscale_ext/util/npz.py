"""Arrays of an npz file, each looked at before memory is set aside for it.

``numpy.load`` takes a header's word for the size of an array, and a zip of a few megabytes may unpack to
gigabytes. Here an array must be as large as its entry in the archive, that entry not above a bound, and its
values numbers or text: no Python objects, which would be a pickle.
"""

import io
import math
import zipfile
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import psutil

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Npz:
    """An npz file open for reading; ``names`` are its arrays, ``most`` the bytes that one of them may have.

    Closes ``file`` in the end. Raises ValueError for whatever is wrong.
    """

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._most = min(most, psutil.virtual_memory().total)
        self._file = file
        try:
            if self._file.read(6) == b"\x93NUMPY":
                raise ValueError("it is a single array")
            self._archive = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, NotImplementedError, UnicodeError, ValueError) as error:
            self._file.close()
            raise ValueError(str(error)) from None
        self.names = [name.removesuffix(".npy") for name in self._archive.namelist()]

    def __enter__(self) -> "Npz":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()
        self._file.close()

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        """An array, read-only; KeyError where there is none of that name."""
        entries = set(self._archive.namelist())
        entry = self._archive.getinfo(f"{name}.npy" if f"{name}.npy" in entries else name)
        if entry.file_size > self._most:
            raise ValueError(f"it claims {entry.file_size:,} bytes, of which {self._most:,} are allowed")
        try:
            with self._archive.open(entry) as file:
                return _array(file, entry.file_size)
        except Exception as error:  # a damaged archive or header can make its decoder raise nearly anything
            raise ValueError(str(error) or type(error).__name__) from None


def read_npy(file: BinaryIO) -> np.ndarray:
    """Read the array of an npy file, read-only; ValueError for whatever is wrong."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    try:
        return _array(file, size)
    except Exception as error:  # as above
        raise ValueError(str(error) or type(error).__name__) from None


def _array(file: Any, size: int) -> np.ndarray:
    """The array in an entry of ``size`` bytes."""
    shape, fortran, dtype = _header(file)
    if dtype.hasobject:
        raise ValueError(
            "it holds Python objects, where plain arrays are read: save it as numbers or text, as by astype(str)"
        )
    claimed = math.prod(shape) * dtype.itemsize
    if file.tell() + claimed != size:
        raise ValueError(f"its header claims {dtype}{list(shape)[:8]}, which is not what follows")
    if not claimed:
        if math.prod(shape):  # NumPy would set aside memory for text without characters
            raise ValueError(f"its header claims {dtype}{list(shape)[:8]}, whose values have no bytes")
        return np.zeros(shape, dtype)
    return np.frombuffer(file.read(claimed), dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its format {version} is not known")
    shape, fortran, dtype = _HEADERS[version](file)
    if any(side < 0 for side in shape):
        raise ValueError("its shape has a side below zero")
    return shape, fortran, dtype
