"""Arrays of numbers in MATLAB's mat files (format 5, which ``save -v6`` and ``-v7`` write).

scipy's reader, the usual one, ends the process on some damaged files (a segmentation fault in 1.17.1). This one reads
only plain arrays, within bounds; objects, functions and whatever else is in a file are stepped over.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.published import open_part
from fedscale_ext.util.reading import MEGA

_MOST = 2048 * MEGA  # bytes of a file, and of an array
_ARRAY, _PACKED = 14, 15
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMBERS = range(6, 16)  # classes of arrays: double, single, and integers of 8 to 64 bits
_COMPLEX = 0x800
_LONGEST = 256  # bytes of a name, or of the lengths of all axes

Bytes = bytes | bytearray
Read = Callable[[int], Bytes]
"""The next so many bytes, fewer at the end."""


def read_mat(path: Path, names: Sequence[str]) -> list[np.ndarray]:
    """Read the arrays of these names.

    UserError where the file or an array is missing or damaged, or where an array does not hold numbers.
    """
    arrays: dict[str, np.ndarray] = {}
    with open_part(path, _MOST) as file:
        try:
            order = _byte_order(file.read(128))
            while len(arrays) < len(names) and (tag := file.read(8)):
                kind, size = _tag(tag, order)
                end, packed = file.tell() + size, kind == _PACKED
                read: Read = _unpacked(file, size) if packed else file.read
                if packed:
                    kind, _ = _tag(read(8), order)
                array = _array(read, order, names) if kind == _ARRAY else {}
                if array and packed and read(1):  # which also compares the checksum
                    raise ValueError("more follows on an array than its header claims")
                arrays |= array
                file.seek(end)
        except (ValueError, zlib.error) as error:
            raise UserError(f"{path} cannot be read as a mat file ({error}): unpack the archive again") from error
    lacks = [name for name in names if name not in arrays]
    if lacks:
        raise UserError(f"{path} has no array {' nor '.join(lacks)}: is it the file as it is published?")
    return [arrays[name] for name in names]


def _byte_order(header: bytes) -> str:
    """NumPy's sign for the order of bytes that a file's first 128 tell."""
    orders = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
    if header[124:] not in orders:
        newer = header[124:] == b"\x00\x02IM"
        raise ValueError("it is of format 7.3: save it with -v7" if newer else "it is not of MATLAB's format 5")
    return orders[header[124:]]


def _unpacked(file: BinaryIO, size: int) -> Read:
    """Reads what ``size`` bytes of a file are when they are decompressed, no more than is asked for."""
    unpacker, left, waiting = zlib.decompressobj(), size, b""

    def read(count: int) -> bytearray:
        nonlocal left, waiting
        content = bytearray()
        while len(content) < count and not unpacker.eof:
            packed = waiting or file.read(min(left, MEGA))
            left -= 0 if waiting else len(packed)
            more = unpacker.decompress(packed, count - len(content))
            waiting = unpacker.unconsumed_tail
            content += more
            if not (packed or more):
                raise ValueError("it is cut off")
        return content

    return read


def _array(read: Read, order: str, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The array that follows under its name, where that is one of ``names``; else nothing, read no further."""
    flags = _element(read, order, _LONGEST)
    shape = tuple(_element(read, order, _LONGEST).tolist())
    name = _element(read, order, _LONGEST).tobytes().decode("ascii", "replace")
    if name not in names:
        return {}
    if flags.dtype.kind != "u" or not flags.size or int(flags[0]) & 0xFF not in _NUMBERS or int(flags[0]) & _COMPLEX:
        raise ValueError(f"{name} is not an array of real numbers")
    count = math.prod(shape)
    if any(type(side) is not int or side < 0 for side in shape) or count > _MOST:
        raise ValueError(f"{name} claims the shape {list(shape)[:8]}")
    values = _element(read, order, 8 * count)
    if values.size != count:
        raise ValueError(f"{name} claims the shape {list(shape)[:8]}, but {values.size} numbers follow")
    return {name: values.reshape(shape, order="F")}


def _tag(tag: Bytes, order: str) -> tuple[int, int]:
    """Kind and size of what follows a tag of 8 bytes."""
    if len(tag) != 8:
        raise ValueError("it is cut off")
    kind, size = np.frombuffer(tag, f"{order}u4").tolist()
    return kind, size


def _element(read: Read, order: str, most: int) -> np.ndarray:
    """The numbers of the next element, at most ``most`` bytes; a short one lies within its tag."""
    tag = read(8)
    kind, size = _tag(tag, order)
    inside = kind >> 16
    if inside:
        kind, size = kind & 0xFFFF, inside
    type_ = np.dtype(f"{order}{_TYPES[kind]}") if kind in _TYPES else None
    if type_ is None or size > min(most, 4 if inside else _MOST) or size % type_.itemsize:
        raise ValueError("an array in it is damaged")
    data = tag[4 : 4 + size] if inside else read(size + -size % 8)[:size]
    if len(data) != size:
        raise ValueError("it is cut off")
    return np.frombuffer(data, type_)
