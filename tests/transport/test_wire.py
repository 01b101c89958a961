import json
import struct
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.transport import wire

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
        b'{"sections": [], "a": ' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"sections": [], "a": [' + b"0," * 1_000_000 + b"0]}",
        b'{"sections": [], "a": [' + b"[]," * 600_000 + b"0]}",
        b'{"sections": [], "a": NaN}',
        b'{"sections": [], "a": -Infinity}',
        b'{"sections": [], "a": ' + b"9" * 5000 + b"}",
        b'"' * 5_000_000,
        b"\xef\xbb\xbf" + b'{"sections": []}',
        '{"sections": []}'.encode("utf-16"),
        b"}{",
        b"\xff\xfe",
    ],
)
def test_headers_that_lie_are_refused(header: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.unpack(HEAD + struct.pack("<I", len(header)) + header)


def test_tensors_that_share_memory_travel_whole() -> None:
    base = torch.arange(12.0).reshape(3, 4)
    for tensors in ({"base": base, "tied": base, "row": base[1]}, {"row": base[1], "other": base[2]}):
        back = wire.bytes_to_tensors(wire.tensors_to_bytes(tensors))
        assert back.keys() == tensors.keys() and all(torch.equal(back[name], tensors[name]) for name in tensors)


def test_text_does_not_count_as_nesting_or_values() -> None:
    text = '[{"' * 500_000 + "\\\\" + '\\"' + '"' + ",:" * 500_000
    for header in ({"a": text}, {text: [[1, {"b": text[::-1]}]]}):
        assert wire.unpack(wire.pack(header)) == (header, {})


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(alphabet='[]{},:"\\ab'),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[]{},:"\\ab'), inner, max_size=4),
        max_leaves=30,
    )
)
def test_every_header_that_is_not_too_deep_comes_back(value: object) -> None:
    assert wire.unpack(wire.pack({"value": value})) == ({"value": value}, {})


def test_a_hostile_header_costs_little_time() -> None:
    began = time.process_time()
    for text in (b'"\\' * 5_000_000, b"[" * 15_000_000, b'{"a":' * 3_000_000, b"\\" * 15_000_000, b'"' * 15_000_000):
        with pytest.raises(wire.WireError):
            wire.unpack(HEAD + struct.pack("<I", len(text)) + text)
    assert time.process_time() - began < 5.0


def test_another_version_is_named_in_one_sentence() -> None:
    message = wire.pack({})
    with pytest.raises(wire.WireError, match="install the same version") as raised:
        wire.unpack(b"FSX2" + message[4:])
    assert "\n" not in str(raised.value)


def test_a_section_whose_header_is_larger_than_any_model_needs_is_refused() -> None:
    text = b"{" + b" " * (5 << 20) + b"}"
    with pytest.raises(wire.WireError, match="names and shapes"):
        wire.bytes_to_tensors(struct.pack("<Q", len(text)) + text)


def test_a_number_that_json_lacks_is_not_sent() -> None:
    with pytest.raises(ValueError):
        wire.pack({"a": float("nan")})


def test_a_length_beyond_the_message_is_refused() -> None:
    header = json.dumps({"sections": []}).encode()
    with pytest.raises(wire.WireError, match="claims"):
        wire.unpack(HEAD + struct.pack("<I", 2**31) + header)


def test_a_section_that_holds_no_tensors_is_refused() -> None:
    for section in (b"", b"x" * 100, struct.pack("<Q", 2**60) + b"{}"):
        with pytest.raises(wire.WireError):
            wire.bytes_to_tensors(section)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    entries=st.dictionaries(
        st.text(max_size=5) | st.just("__metadata__"),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "I64", "BF16", "BOOL", "F8_E5M2", "F4", "U64", "X", 3, None]),
                "shape": st.lists(st.integers(-1, 4) | st.sampled_from([2**31, 2**62, 2**63, 2**64]), max_size=4),
                "data_offsets": st.lists(st.integers(0, 40) | st.just(2**63), min_size=1, max_size=3),
            }
        ),
        max_size=3,
    ),
    body=st.binary(max_size=40),
)
def test_a_section_of_any_description_holds_what_it_says_or_is_refused(entries: dict, body: bytes) -> None:
    text = json.dumps(entries).encode()
    try:
        tensors = wire.bytes_to_tensors(struct.pack("<Q", len(text)) + text + body)
    except wire.WireError:
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) == len(body)
