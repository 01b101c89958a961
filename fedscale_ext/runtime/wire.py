"""Messages between aggregator and executors: a JSON header and raw tensors, nothing executable.

One message is ``magic, header length (uint32, little endian), header (UTF-8 JSON), sections``.
The header's ``sections`` lists the name and length of each section in order; a section is a
safetensors file in memory, so that a state is serialised once and appended to any number of
messages. FedScale's protobuf fields ``executor_info``, ``data`` and ``data_result`` carry it.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from fedscale_ext.runtime.work import State

_MAGIC = b"FSX1"
_LENGTH = struct.Struct("<I")
_MAX_HEADER = 64 * 1024 * 1024
_MAX_SECTIONS = 100_000


Section = bytes | memoryview  # one safetensors file in memory


class WireError(Exception):
    """A message that is not of the form above, or is larger than allowed; nothing of it was used."""


def tensors_to_bytes(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """A section: names, dtypes, shapes and raw values of CPU tensors."""
    return safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in tensors.items()})


def bytes_to_tensors(section: Section) -> State:
    """The tensors of a section, as copies that may be written to."""
    try:
        return safetensors.torch.load(bytes(section))
    except (SafetensorError, ValueError, KeyError, RuntimeError, OverflowError) as error:
        raise WireError(f"a section does not hold tensors: {error}") from None


def pack(header: Mapping[str, Any], sections: Mapping[str, bytes] | None = None) -> bytes:
    """The bytes of a message; ``header`` must be JSON and must not use the key ``sections``."""
    parts = dict(sections or {})
    table = [[name, len(part)] for name, part in parts.items()]
    text = json.dumps({**header, "sections": table}, separators=(",", ":")).encode()
    return b"".join([_MAGIC, _LENGTH.pack(len(text)), text, *parts.values()])


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, Section]]:
    """Header and sections of a message; raises WireError unless every length adds up exactly.

    Sections are views of the message, which they keep alive.
    """
    start = len(_MAGIC) + _LENGTH.size
    if len(message) < start or message[: len(_MAGIC)] != _MAGIC:
        raise WireError("not a message of this version")
    (length,) = _LENGTH.unpack_from(message, len(_MAGIC))
    if length > _MAX_HEADER or start + length > len(message):
        raise WireError(f"the header claims {length} bytes of a message of {len(message)}")
    try:
        header = json.loads(bytes(message[start : start + length]))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise WireError("the header is not an object")
    return header, _sections(header.pop("sections", None), message, start + length)


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
