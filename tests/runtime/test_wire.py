import json
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.runtime import wire

HEAD = b"FSX" + wire.VERSION
DTYPES = [torch.float32, torch.float64, torch.int64, torch.uint8, torch.bool, torch.bfloat16]


def test_tensors_come_back_as_they_were_and_may_be_written_to() -> None:
    tensors = {f"t{i}": torch.ones(2, 3).to(dtype) for i, dtype in enumerate(DTYPES)}
    tensors |= {"scalar": torch.tensor(7), "empty": torch.zeros(0, 4), "slice": torch.arange(12.0).view(3, 4)[:, 1:3]}
    back = wire.bytes_to_tensors(wire.tensors_to_bytes(tensors))
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)
    back["scalar"] += 1


@settings(deadline=None, derandomize=True, max_examples=50)
@given(
    header=st.dictionaries(st.text().filter(lambda key: key != "sections"), st.integers() | st.text() | st.none()),
    sections=st.dictionaries(st.text(), st.binary(max_size=64), max_size=5),
)
def test_messages_come_back_as_they_were(header: dict, sections: dict) -> None:
    assert wire.unpack(wire.pack(header, sections)) == (header, sections)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(data=st.data())
def test_a_damaged_message_is_refused_or_still_well_formed(data: st.DataObject) -> None:
    message = bytearray(wire.pack({"unit": 1}, {"a": b"12345", "b": b""}))
    kind = data.draw(st.sampled_from(["cut", "grow", "flip"]))
    if kind == "cut":
        message = message[: data.draw(st.integers(0, len(message) - 1))]
    elif kind == "grow":
        message += data.draw(st.binary(min_size=1, max_size=9))
    else:
        message[data.draw(st.integers(0, len(message) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        header, sections = wire.unpack(bytes(message))
    except wire.WireError:
        return
    assert kind == "flip"
    assert isinstance(header, dict) and all(isinstance(part, memoryview) for part in sections.values())


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}",
        b'{"sections": 3}',
        b'{"sections": [["a", -1]]}',
        b'{"sections": [["a", 0], ["a", 0]]}',
        b'{"sections": [["a", 1]]}',
        b'{"sections": [[1, 1]]}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_headers_that_lie_are_refused(header: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(HEAD + struct.pack("<I", len(header)) + header)


def test_a_length_beyond_the_message_is_refused() -> None:
    header = json.dumps({"sections": []}).encode()
    with pytest.raises(wire.WireError, match="claims"):
        wire.unpack(HEAD + struct.pack("<I", 2**31) + header)


def test_a_section_that_holds_no_tensors_is_refused() -> None:
    for section in (b"", b"x" * 100, struct.pack("<Q", 2**60) + b"{}"):
        with pytest.raises(wire.WireError):
            wire.bytes_to_tensors(section)
