"""Traces from anywhere: whatever a file holds, the readers end soon, with columns or one sentence."""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.reading import read_availability, read_capacity
from tests.mutations import mutated

CAPACITY = {n: {"computation": 10.5 + n, "communication": 2000 + n} for n in range(1, 6)}
AVAILABILITY = {n: {"active": [1, 5.5 * n], "inactive": [3, 90], "finish_time": 100} for n in range(1, 5)}
READERS = {read_capacity: CapacityTrace, read_availability: AvailabilityTrace}


def samples(folder: Path) -> dict[str, list[bytes]]:
    np.savez(folder / "c.npz", client_id=[1, 2], computation_ms_per_sample=[3.0, 4.0], communication_kbps=[5.5, 6.0])
    np.savez_compressed(folder / "a.npz", client_id=[1, 2], offsets=[0, 1, 2], active=[1.0, 2.0], inactive=[3.0, 4.0],
                        finish_time=[9.0, 9.0])  # fmt: skip
    return {
        "": [pickle.dumps(data, protocol) for data in (CAPACITY, AVAILABILITY) for protocol in (0, 2, 4)],
        ".csv": [b"client_id,computation,communication\n1,2,3\n2,4,5.5\n",
                 b'client_id,active,inactive,finish_time\n1,2,3,10\n"1",5,6,10\n2,0,1,9\n'],
        ".npz": [(folder / "c.npz").read_bytes(), (folder / "a.npz").read_bytes()],
    }  # fmt: skip


@pytest.mark.parametrize("suffix", ["", ".csv", ".npz"])
def test_damaged_traces_end_in_columns_or_one_sentence(tmp_path: Path, suffix: str) -> None:
    whole = samples(tmp_path)[suffix]
    path = tmp_path / f"trace{suffix}"
    refused = 0
    for data in mutated(whole, 400):
        path.write_bytes(data)
        for reader, kind in READERS.items():
            try:
                assert isinstance(reader(path), kind)
            except UserError as error:
                refused += 1
                assert str(error).isprintable() and len(str(error)) <= 2000
    assert refused > 500  # of 800: each sample is for one of the readers


@pytest.mark.parametrize(
    ("reader", "header", "row", "column"),
    [
        (read_capacity, "client_id,computation,computation,communication", "1,2,3,4", "computation"),
        (read_capacity, "client_id,computation,communication, client_id", "1,2,3,4", "client_id"),
        (read_capacity, "client_id,computation,communication,resampled,resampled", "1,2,3,1,0", "resampled"),
        (read_availability, "client_id,active,inactive,finish_time,active", "1,2,3,10,5", "active"),
    ],
)
def test_a_column_that_is_there_twice_is_refused(tmp_path: Path, reader, header: str, row: str, column: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{header}\n{row}\n")
    with pytest.raises(UserError) as refused:
        reader(path)
    assert str(refused.value) == f"{path}: the header has the column {column!r} twice; keep one of them"


def test_columns_that_nobody_reads_may_be_alike(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("client_id,computation,communication,note,note\n1,2,3,x,y\n")
    assert len(read_capacity(path)) == 1


@pytest.mark.parametrize("suffix", ["", ".csv", ".npz"])
def test_what_is_no_plain_file_keeps_nobody_waiting(tmp_path: Path, suffix: str) -> None:
    pipe, folder, zero = (tmp_path / f"{name}{suffix}" for name in ("pipe", "folder", "zero"))
    os.mkfifo(pipe)
    folder.mkdir()
    zero.symlink_to("/dev/zero")
    for path in (pipe, folder, zero):
        for reader in READERS:
            with pytest.raises(UserError, match="it is no plain file"):
                reader(path)


def test_a_trace_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    for name in ("trace", "trace.csv", "trace.npz"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(10**10)  # no room is used for it
        with pytest.raises(UserError, match="10,000,000,000 bytes"):
            read_capacity(tmp_path / name)


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(UserError) as caught:
        read_capacity(path)
    return str(caught.value)


def test_numbers_chosen_to_collide_are_refused_before_a_dict_holds_them(tmp_path: Path) -> None:
    """hash(k) is k modulo 2**61 - 1: a dict of 5,000 such keys takes seconds to read, one of a million days."""
    colliding = {n * (2**61 - 1): 0 for n in range(2000, 2000 + 1200)}
    for protocol in (0, 2):
        said = refusal(tmp_path / "trace", pickle.dumps(colliding, protocol))
        assert "numbers of more than 64 bits" in said


def test_more_containers_than_any_trace_has_are_refused_unread(tmp_path: Path) -> None:
    assert "dicts and lists" in refusal(tmp_path / "trace", b"\x80\x02" + b"]" * 8_000_001 + b".")


@pytest.mark.parametrize("opcode", [b"I", b"L", b"F", b"p", b"g"])
def test_numbers_that_never_end_are_refused(tmp_path: Path, opcode: bytes) -> None:
    said = refusal(tmp_path / "trace", opcode + b"1" * 10**6 + b"\n.")
    assert "1,000,001 characters" in said


def npz_with(path: Path, member: bytes, *, compressed: bool = True) -> Path:
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("client_id.npy", member)
    return path


def head(shape: str, descr: str = "<f8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(text + b"\n").to_bytes(2, "little") + text + b"\n"


@pytest.mark.parametrize(
    "member",
    [
        head("(10000000000000,)") + b"1234",
        head("(-5,)") + b"1234",
        head("(3,)") + b"1234",
        head("(10**9,)"),
        head("(" + "1," * 2000 + ")") + b"12345678",
        head("(0, 99999999999999999999)"),
        head("(2,)", "|O") + b"cos\nsystem\n.",
        head("(3,)", "<U99999999999"),
        b"\x93NUMPY\x03\x00\x04\x00\x00\x00{}\n ",
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
    ],
    ids=range(10),
)
def test_no_array_is_taken_at_its_headers_word(tmp_path: Path, member: bytes) -> None:
    with pytest.raises(UserError, match=r"not a whole \.npz of plain arrays|one row of numbers"):
        read_capacity(npz_with(tmp_path / "trace.npz", member))


def test_an_archive_that_unpacks_to_much_more_than_it_is_stays_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscale_ext.population.traces.tables.MAX_BYTES", 1 << 20)
    path = npz_with(tmp_path / "trace.npz", head("(1048576,)") + bytes(8 << 20))
    assert path.stat().st_size < 10_000
    with pytest.raises(UserError, match=r"claims 8,388,\d+ bytes, of which 1,048,576"):
        read_capacity(path)


def test_a_file_of_another_kind_is_called_none(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A page\n")
    with pytest.raises(UserError, match=r"README\.md is no trace: it is neither a pickle nor named as csv or npz"):
        read_capacity(tmp_path / "README.md")
