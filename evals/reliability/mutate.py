"""Hostile variants of bytes and of messages. Everything is drawn from the ``random.Random`` that is handed in."""

import copy
import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fedscale_ext.transport import wire

_NUMBERS = [0, 1, -1, 2, 7, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1,
            2**63, 2**64 - 1, 2**64, -(2**63), 10**30, 10**400]  # fmt: skip
_VALUES: list[Any] = [
    None, True, False, 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), "", "a", "\ud800", "\0", "x" * 3000,
    [], {}, [[]], [1, 2], {"a": 1}, {"": {}}, [[[[[[[[[[]]]]]]]]]], "sum", "figures", "sizes", "failed", *_NUMBERS,
]  # fmt: skip
_KEYS = ["sections", "unit", "results", "weight", "seconds", "seconds_by_size", "client", "failed", "loss", "",
         "\ud800", "digest", "data", "versions", "device", "round", "__metadata__", "dtype", "shape"]  # fmt: skip


def mutated(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """One to four changes of the bytes; ``others`` lend theirs."""
    changed = bytearray(data)
    for _ in range(random.randint(1, 4)):
        random.choice(_CHANGES)(random, changed, others)
    return bytes(changed)


def _place(random: Random, data: bytearray) -> int:
    """Early places more often: there are the lengths and headers."""
    return random.randrange(min(len(data), random.choice([16, 256, 1 << 30])) + 1)


def _flip(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    if at < len(data):
        data[at] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    form = random.choice(["<B", "<H", "<I", "<Q", ">I"])
    number = random.choice(_NUMBERS) % 256 ** struct.calcsize(form)
    data[at : at + struct.calcsize(form)] = struct.pack(form, number)


def _insert(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    data[at:at] = random.choice([random.randbytes(random.randint(1, 40)), b"[" * 50, b'"', b"\\", b"\xff", b"\0" * 9])


def _delete(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    del data[at : at + random.choice([1, 2, 8, 100])]


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[_place(random, data) :]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = _place(random, data)
    piece = bytes(data[at : at + random.choice([1, 8, 60])])
    data[at:at] = piece * random.choice([1, 2, 50])


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    at = random.randrange(len(other) + 1)
    data[_place(random, data) :] = other[at:]


def _number(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    """Another number in the text of a header."""
    found = list(re.finditer(rb"\d+", data[:4096]))
    if found:
        match = random.choice(found)
        data[match.start() : match.end()] = str(random.choice(_NUMBERS)).encode()


_CHANGES: list[Callable[[Random, bytearray, Sequence[bytes]], None]] = [
    _flip, _overwrite, _insert, _delete, _cut, _repeat, _splice, _number
]  # fmt: skip


def rewritten(random: Random, message: bytes, others: Sequence[bytes]) -> bytes:
    """A message whose lengths add up, with one to three changes to the values of its header and to its sections."""
    header, parts = wire.unpack(message)
    sections = {name: bytes(part) for name, part in parts.items()}
    for _ in range(random.randint(1, 3)):
        if sections and random.random() < 0.4:
            _change_sections(random, sections, others)
        else:
            _change_value(random, header)
    table = [[name, len(part)] for name, part in sections.items()]
    text = json.dumps({**header, "sections": header.get("sections", table)}, separators=(",", ":")).encode()
    return b"".join([b"FSX", wire.VERSION, struct.pack("<I", len(text)), text, *sections.values()])


def _change_sections(random: Random, sections: dict[str, bytes], others: Sequence[bytes]) -> None:
    name = random.choice(list(sections))
    match random.randrange(5):
        case 0:
            del sections[name]
        case 1:
            sections[random.choice(_KEYS)] = sections.pop(name)
        case 2:
            sections[random.choice(["sum", "0", "figures", "more"])] = random.choice(others)
        case 3:
            sections[name] = tensors_rewritten(random, sections[name])
        case _:
            sections[name] = mutated(random, sections[name], others)


def tensors_rewritten(random: Random, section: bytes) -> bytes:
    """A safetensors file with a changed header whose length is right."""
    try:
        (length,) = struct.unpack_from("<Q", section)
        header = json.loads(section[8 : 8 + length])
        if not isinstance(header, dict | list):
            raise ValueError("its header has no entries")
        _change_value(random, header)
        text = json.dumps(header).encode()
    except (struct.error, ValueError):  # an earlier change spoilt it
        return section[::-1]
    return struct.pack("<Q", len(text)) + text + section[8 + length :]


def _change_value(random: Random, tree: Any) -> None:
    """Replace, remove or add one entry somewhere in a tree of JSON values."""
    while True:
        inner = [
            value for value in (tree.values() if isinstance(tree, dict) else tree) if isinstance(value, list | dict)
        ]
        if not inner or random.random() < 0.3:
            break
        tree = random.choice(inner)
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
    kind = random.randrange(4)
    if kind == 0 and keys:
        del tree[random.choice(keys)]
    elif kind == 1 and isinstance(tree, dict):
        tree[random.choice(_KEYS)] = _value(random)
    elif kind == 1:
        tree.append(_value(random))
    elif keys:
        tree[random.choice(keys)] = _value(random)


def _value(random: Random) -> Any:
    return copy.deepcopy(random.choice(_VALUES))  # the tree that it goes into is changed further
