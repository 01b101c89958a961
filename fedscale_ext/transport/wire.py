"""Messages between aggregator and executors: a JSON header and raw tensors, nothing executable.

One message is ``magic, format version, header length (uint32, little endian), header (UTF-8 JSON), sections``.
The header's ``sections`` lists the name and length of each section in order. A section is a safetensors file in memory,
so that a state is serialised once and appended to any number of messages. FedScale's protobuf fields ``executor_info``,
``data`` and ``data_result`` carry the message.

A reader checks bounds before it builds anything from a message: the header's bytes, nesting and number of values, the
number of sections, and each section's own header. gRPC bounds the message as a whole (``max_message_mb``). The message
has no digest, because the call's stamp has one (``signing.py``).
"""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError

from fedscale_ext.core.types import State
from fedscale_ext.util.tensor_files import in_memory

_MAGIC = b"FSX"
VERSION = b"1"  # of this format: one byte
_LENGTH = struct.Struct("<I")
_START = len(_MAGIC) + len(VERSION) + _LENGTH.size
_MAX_HEADER = 16 * 1024 * 1024  # bytes; a round of 10,000 clients in one unit needs about 1 MB
_MAX_VALUES = 1_000_000  # in a header: numbers, texts, lists, objects
_MAX_DEPTH = 32
_MAX_SECTIONS = 100_000
_MAX_TENSOR_HEADER = 4 * 1024 * 1024  # bytes; a tensor's entry has about a hundred
_SECTION_LENGTH = struct.Struct("<Q")  # of the header of a safetensors file
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


Section = bytes | memoryview  # one safetensors file in memory


class WireError(Exception):
    """Raised for a message that is malformed or larger than allowed; none of it was used."""


def tensors_to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Serialise tensors to a section: their names, dtypes, shapes and raw values. They may share memory."""
    return in_memory(tensors)


def bytes_to_tensors(section: Section) -> State:
    """Read the tensors of a section.

    Args:
        section: One safetensors file in memory.

    Returns:
        The tensors by name, as copies that may be written to.

    Raises:
        WireError: If the section does not hold tensors.

    """
    if len(section) < _SECTION_LENGTH.size:
        raise WireError("a section does not hold tensors: it is too short")
    (length,) = _SECTION_LENGTH.unpack_from(section)
    if length > _MAX_TENSOR_HEADER:
        raise WireError(f"a section claims {length} bytes of names and shapes; {_MAX_TENSOR_HEADER} are allowed")
    content = bytes(section)
    del section  # it may have been the last to need a large message
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError, OverflowError) as error:
        raise WireError(f"a section does not hold tensors: {_short(error)}") from None


def columns(section: Section, names: Sequence[str], dtype: torch.dtype) -> list[np.ndarray]:
    """Read one-dimensional tensors of equal length from a section.

    Args:
        section: A section that holds these tensors and no others.
        names: Names of the tensors.
        dtype: The dtype that each must have.

    Returns:
        The tensors as arrays [n], in the order of ``names``.

    Raises:
        WireError: If a tensor is missing, superfluous, or of another shape or dtype.

    """
    tensors = bytes_to_tensors(section)
    if tensors.keys() != set(names):
        raise WireError(f"a section must hold {', '.join(names)} and nothing else")
    selected = [tensors[name] for name in names]
    if any(column.dtype != dtype or column.dim() != 1 or len(column) != len(selected[0]) for column in selected):
        raise WireError(f"{', '.join(names)} must be columns of one length and of {dtype}")
    return [column.numpy() for column in selected]


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes] | None = None) -> bytes:
    """Write a message.

    Args:
        header: JSON values without NaN; the key ``sections`` is reserved.
        sections: The sections by name, in order.

    Returns:
        The message's bytes.

    """
    parts = dict(sections or {})
    table = [[name, len(part)] for name, part in parts.items()]
    text = json.dumps({**header, "sections": table}, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_MAGIC, VERSION, _LENGTH.pack(len(text)), text, *parts.values()])


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, Section]]:
    """Read a message.

    Args:
        message: The message's bytes.

    Returns:
        The header and the sections by name. Numbers of the header may be infinite. Sections are views of the message,
        which they keep alive.

    Raises:
        WireError: If the message is malformed, too large, or its lengths do not add up exactly.

    """
    if len(message) < _START or message[: len(_MAGIC)] != _MAGIC:
        raise WireError("not a message of this program")
    version = message[len(_MAGIC) : len(_MAGIC) + len(VERSION)]
    if version != VERSION:
        raise WireError(
            f"a message of format {version!r}, this program reads {VERSION!r}: install the same version of "
            "fedscale_ext for aggregator and executors"
        )
    (length,) = _LENGTH.unpack_from(message, _START - _LENGTH.size)
    if length > _MAX_HEADER or _START + length > len(message):
        raise WireError(f"the header claims {length} bytes of a message of {len(message)}")
    text = bytes(message[_START : _START + length])
    _check_outline(text)
    try:
        header = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {_short(error)}") from None
    if not isinstance(header, dict):
        raise WireError("the header is not an object")
    return header, _sections(header.pop("sections", None), message, _START + length)


def _check_outline(text: bytes) -> None:
    """Raise WireError for a header of too many or too deeply nested values, in a few passes over its bytes."""
    if text.count(b'"') > 4 * _MAX_VALUES:
        raise WireError("the header holds too many texts")
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(plain.split(b'"')[::2])  # what is not text
    brackets = outside.translate(None, _ALL_BUT_BRACKETS)
    if outside.count(b",") + outside.count(b":") + len(brackets) > _MAX_VALUES:
        raise WireError(f"the header holds more than {_MAX_VALUES} values")
    for _ in range(_MAX_DEPTH):  # each pass takes the innermost away
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets:
        raise WireError("the header nests its values too deep, or not at all")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _short(error: Exception) -> str:
    return str(error)[:200]


def _sections(table: Any, message: bytes, at: int) -> dict[str, Section]:
    if not isinstance(table, list) or len(table) > _MAX_SECTIONS:
        raise WireError("the header has no usable table of sections")
    sections: dict[str, Section] = {}
    whole = memoryview(message)
    for entry in table:
        match entry:
            case [str(name), int(length)] if length >= 0 and name not in sections:
                sections[name] = whole[at : at + length]
                at += length
            case _:
                raise WireError("the table of sections holds something other than names and lengths")
    if at != len(message):
        raise WireError(f"the sections need {at} bytes of a message of {len(message)}")
    return sections
