"""Capacity traces: what is read from each format, and what is refused in which words."""

import contextlib
import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.reading import read_capacity

GOOD = {1: {"computation": 153.0, "communication": 2209.6}, 2: {"computation": 39, "communication": 18437.25}}
SAMPLES = Path(__file__).resolve().parents[3] / "device_traces"


def pickled(folder: Path, data: Any, protocol: int = 4) -> Path:
    path = folder / "client_device_capacity"
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data, protocol=protocol))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_capacity(path)
    assert path.name in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    trace = read_capacity(pickled(tmp_path, GOOD, protocol))
    assert trace.client_id.tolist() == [1, 2]
    assert trace.computation_ms.tolist() == [153, 39]
    assert trace.communication_kbps.tolist() == [2209.6, 18437.25]


def test_many_entries_are_read_whatever_opcodes_their_size_needs(tmp_path: Path) -> None:
    data = {2**shift: {"computation": 1 + shift, "communication": 10.0**shift} for shift in range(63)}
    data |= {3**38 + i: {"computation": 0.5, "communication": 70000} for i in range(3000)}
    trace = read_capacity(pickled(tmp_path, data))
    assert trace.client_id.tolist() == list(data)
    assert trace.communication_kbps.tolist() == [float(entry["communication"]) for entry in data.values()]


class Harmful:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return Path.touch, ("harmed",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("value", "named"),
    [
        (OrderedDict(GOOD), "collections.OrderedDict"),
        ({1: {"computation": np.float64(3), "communication": 4.0}}, "numpy"),
        (Harmful(), "touch"),
        (eval, "eval"),
    ],
    ids=["OrderedDict", "numpy scalar", "call", "function"],
)
def test_globals_are_refused_by_name(tmp_path: Path, value: Any, named: str, protocol: int) -> None:
    message = refusal(pickled(tmp_path, value, protocol))
    assert "refused" in message
    if not (named == "touch" and protocol < 4):  # older protocols reach a method through getattr
        assert named in message


def test_a_call_hidden_behind_good_entries_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harmful = b"\x80\x02(}cos\nmkdir\n(X\x06\x00\x00\x00harmedtR."
    assert "os.mkdir" in refusal(pickled(tmp_path, harmful))
    assert not Path("harmed").exists()


@pytest.mark.parametrize(
    ("data", "opcode"),
    [
        (pickle.dumps({1, 2}, 4), "EMPTY_SET"),
        (pickle.dumps({1: (2, 3)}), "TUPLE2"),
        (pickle.dumps({1: b"bytes"}), "SHORT_BINBYTES"),
        (pickle.dumps({1: True}), "NEWTRUE"),
        (pickle.dumps({1: None}), "NONE"),
        (b"\x80\x02}q\x00R.", "REDUCE"),
        (b"\x80\x02}\x82\x01.", "EXT1"),
        (b"Pan id\n.", "PERSID"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "LONG_BINPUT"),
        (b"}p999999999\n.", "PUT"),
        (b"\x80\x02}\xff.", "0xff"),
    ],
)
def test_other_opcodes_are_refused_by_name(tmp_path: Path, data: bytes, opcode: str) -> None:
    assert f"opcode {opcode} " in refusal(pickled(tmp_path, data))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"computation": float("nan"), "communication": 4.0}, "client 7 has computation nan"),
        ({"computation": float("inf"), "communication": 4.0}, "client 7 has computation inf"),
        ({"computation": 0, "communication": 4.0}, "client 7 has computation 0"),
        ({"computation": 3.0, "communication": -4.5}, "client 7 has communication -4.5"),
        ({"computation": 3.0}, "client 7 has no 'communication'"),
        ({"computation": "3", "communication": 4.0}, "client 7 has computation '3'"),
        ({"computation": [3], "communication": 4.0}, "client 7 has computation a list"),
        ({"computation": 10**400, "communication": 4.0}, "client 7 has computation a whole number of 1329 bits"),
        ([3.0, 4.0], "client 7 is a list"),
    ],
)
def test_the_first_bad_client_is_named(tmp_path: Path, entry: Any, words: str) -> None:
    assert words in refusal(pickled(tmp_path, {**GOOD, 7: entry, 8: {"computation": -1, "communication": 2}}))


@pytest.mark.parametrize("key", ["1", 2.5, -1, 2**70])
def test_keys_that_are_no_ids_are_named(tmp_path: Path, key: Any) -> None:
    assert "is no client id" in refusal(pickled(tmp_path, {**GOOD, key: GOOD[1]}))


@pytest.mark.parametrize("data", [{}, [1, 2], 5, "text"])
def test_things_that_are_no_trace(tmp_path: Path, data: Any) -> None:
    assert "trace" in refusal(pickled(tmp_path, data))


def test_empty_and_missing_files(tmp_path: Path) -> None:
    assert "is empty" in refusal(pickled(tmp_path, b""))
    assert "cannot read" in refusal(tmp_path / "missing")
    (tmp_path / "empty.csv").write_text("client_id,computation,communication\n")
    assert "holds no device" in refusal(tmp_path / "empty.csv")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_no_truncated_pickle_is_read(tmp_path: Path, protocol: int) -> None:
    whole = pickle.dumps(GOOD, protocol=protocol)
    for length in range(len(whole)):
        refusal(pickled(tmp_path, whole[:length]))


@given(content=st.binary(min_size=1, max_size=60))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_any_bytes_end_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    refusal(pickled(tmp_path_factory.mktemp("junk"), content))


def csv(folder: Path, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_csv_columns_are_found_by_name(tmp_path: Path) -> None:
    trace = read_capacity(csv(tmp_path, "communication, client_id,brand,computation", "2209.6,4,x,153", "8,9,y,3.5"))
    assert trace.client_id.tolist() == [4, 9]
    assert trace.computation_ms.tolist() == [153, 3.5]
    assert trace.communication_kbps.tolist() == [2209.6, 8]


def test_a_table_with_semicolons_is_told_to_use_commas(tmp_path: Path) -> None:
    said = refusal(csv(tmp_path, "client_id;computation;communication", "1;2;3"))
    assert said.endswith("semicolons separate its columns; a trace needs commas")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("3,nan,5", "line 3 has computation nan"),
        ("3,4,inf", "line 3 has communication inf"),
        ("3,0,5", "line 3 has computation 0"),
        ("3,4,-5", "line 3 has communication -5"),
        ("3,4", "line 3 has 2 values for 3 columns"),
        ("3,fast,5", "line 3 has 'fast' where a number belongs"),
        ("3,,5", "line 3 has '' where a number belongs"),
        ("3,1_40,5", "line 3 has '1_40' where a number belongs"),
        ("3.5,4,5", "line 3 has client_id 3.5"),
        ("1,4,5", "line 3 repeats client id 1"),
        ("-3,4,5", "line 3 has client id -3"),
    ],
)
def test_the_first_bad_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    header = "client_id,computation,communication"
    assert words in refusal(csv(tmp_path, header, "1,2,3", line, "4,0,0"))


def test_csv_without_a_column_or_text(tmp_path: Path) -> None:
    assert "no column 'communication'" in refusal(csv(tmp_path, "client_id,computation", "1,2"))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    assert "is no text file" in refusal(tmp_path / "binary.csv")


def npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "trace.npz"
    good = {"client_id": [1, 2], "computation_ms_per_sample": [3, 4], "communication_kbps": [5.5, 6]}
    np.savez(path, **{name: np.asarray(value) for name, value in {**good, **arrays}.items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"communication_kbps": None}, "no array 'communication_kbps'"),
        ({"communication_kbps": [5.5, float("nan")]}, "row 1 has communication nan"),
        ({"computation_ms_per_sample": [0, 1]}, "row 0 has computation 0"),
        ({"computation_ms_per_sample": [1]}, "has 1 rows, client_id has 2"),
        ({"computation_ms_per_sample": ["a", "b"]}, "must be one row of numbers"),
        ({"computation_ms_per_sample": [[1, 2]]}, "must be one row of numbers"),
        ({"computation_ms_per_sample": np.array([1, None], object)}, "plain arrays"),
        ({"client_id": [3, 3]}, "row 1 repeats client id 3"),
    ],
)
def test_bad_npz(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    assert read_capacity(npz(tmp_path)).communication_kbps.tolist() == [5.5, 6]
    assert words in refusal(npz(tmp_path, **arrays))


def test_truncated_npz(tmp_path: Path) -> None:
    whole = npz(tmp_path).read_bytes()
    for part in (whole[:50], whole[: len(whole) // 2], whole[:-10], b"client_id"):
        (tmp_path / "trace.npz").write_bytes(part)
        assert "not a whole .npz" in refusal(tmp_path / "trace.npz")
    single = io.BytesIO()
    np.save(single, np.arange(3))
    (tmp_path / "trace.npz").write_bytes(single.getvalue())
    assert "single array" in refusal(tmp_path / "trace.npz")
    assert not zipfile.is_zipfile(tmp_path / "trace.npz")


@pytest.mark.parametrize("offset", [0, 6, 8, 10, 11, 20, 30, 60, 127])
@pytest.mark.parametrize("flip", [0x01, 0x20, 0xFF])
def test_a_damaged_array_header_ends_in_a_sentence(tmp_path: Path, offset: int, flip: int) -> None:
    """The archive is sound, so that nothing but the header tells; numpy raises a TokenError for some."""
    array = io.BytesIO()
    np.save(array, np.array([1, 2]))
    damaged = bytearray(array.getvalue())
    damaged[offset] ^= flip
    with zipfile.ZipFile(npz(tmp_path, client_id=None), "a") as archive:
        archive.writestr("client_id.npy", bytes(damaged))
    with contextlib.suppress(UserError):  # a header that still reads as two whole numbers is one
        assert read_capacity(tmp_path / "trace.npz").client_id.tolist() == [1, 2]


def test_an_array_header_cut_short_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(npz(tmp_path, client_id=None), "a") as archive:
        archive.writestr("client_id.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': '<i8'(" + b"\n")
    assert "not a whole .npz" in refusal(tmp_path / "trace.npz")


def test_the_real_trace(shared_data: Path) -> None:
    trace = read_capacity(shared_data / "fedscale_device_capacity_51496.npz")
    assert len(trace) == 51_496
    assert (trace.computation_ms.min(), trace.computation_ms.max()) == (15, 199)
    assert trace.communication_kbps.min() == pytest.approx(1016.88, abs=0.01)


def test_the_sample_file_is_readable() -> None:
    assert len(read_capacity(SAMPLES / "sample_capacity.csv")) == 20
