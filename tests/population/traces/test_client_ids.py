"""Client ids of traces: whole numbers, or text that names clients."""

from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.reading import read_availability, read_capacity, read_trace
from fedscale_ext.population.traces.writing import write_trace

HEADER = "client_id,computation,communication\n"


def capacity(folder: Path, *ids: str) -> Path:
    path = folder / "c.csv"
    path.write_text(HEADER + "".join(f"{one},{10 + row},100\n" for row, one in enumerate(ids)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("ids", "read"),
    [
        (["3", "1", "2"], [3, 1, 2]),
        (["1.0", " 2", "3e1"], [1, 2, 30]),  # numbers as programs write them
        (["cam01", "größer", "a b"], ["cam01", "größer", "a b"]),
        (["007", "8"], ["007", "8"]),  # as a number, it would be another name
        (["123456789012345678", "2"], [123456789012345678, 2]),  # a float would lose digits
        (["1234567890123456789", "2"], ["1234567890123456789", "2"]),
        (["1_0", "2"], ["1_0", "2"]),
        (["2", "x"], ["2", "x"]),
    ],
)
def test_ids_are_whole_numbers_or_names(tmp_path: Path, ids: list[str], read: list[int] | list[str]) -> None:
    trace = read_capacity(capacity(tmp_path, *ids))
    assert trace.client_id.tolist() == read
    assert trace.computation_ms.tolist() == [10 + row for row in range(len(ids))]


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", ""], "line 3 has no client_id"),
        (["a", "b", "a"], "line 4 repeats client id a; list each client once"),
        (["1", "2", "1.0"], "line 4 repeats client id 1; list each client once"),
    ],
)
def test_ids_that_name_no_client_are_refused(tmp_path: Path, ids: list[str], words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_capacity(capacity(tmp_path, *ids))


def test_names_whose_array_would_fill_the_memory_are_refused(tmp_path: Path) -> None:
    path = capacity(tmp_path, *(f"c{number}" for number in range(2000)), "x" * 100_000)
    with pytest.raises(UserError, match="client ids of up to 100,000 characters in 2,001 rows are too much"):
        read_capacity(path)


@pytest.mark.parametrize("ending", [".csv", ".npz"])
@pytest.mark.parametrize("ids", [["cam01", "größer", "c,3"], ["007", "8", "9"]])
def test_names_are_read_as_written(tmp_path: Path, ids: list[str], ending: str) -> None:
    figures = np.array([1.5, 2, 3])
    behaviour = AvailabilityTrace(
        np.array(ids), np.array([0, 2, 2, 3]), np.array([1.0, 5, 2]), np.array([2.0, 6, 3]), figures + 100
    )
    for name, trace in (("c", CapacityTrace(np.array(ids), figures, figures)), ("a", behaviour)):
        write_trace(tmp_path / f"{name}{ending}", trace)
        again = read_trace(tmp_path / f"{name}{ending}")
        assert type(again) is type(trace) and again.client_id.tolist() == ids


def test_names_are_written_as_text_that_holds_no_objects(tmp_path: Path) -> None:
    figures = np.array([1.5, 2.0])
    write_trace(tmp_path / "c.npz", CapacityTrace(np.array(["a", "größer"]), figures, figures))
    with np.load(tmp_path / "c.npz", allow_pickle=False) as arrays:
        assert arrays["client_id"].tolist() == ["a", "größer"]


def test_intervals_of_names_are_gathered_in_the_order_of_their_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("client_id,active,inactive,finish_time\nb,1,2,100\na,3,4,100\nb,5,6,100\n")
    trace = read_availability(path)
    assert trace.client_id.tolist() == ["b", "a"]
    assert (trace.offsets.tolist(), trace.active.tolist()) == ([0, 2, 3], [1, 5, 3])
    path.write_text("client_id,active,inactive,finish_time\nb,1,2,100\nb,5,6,90\n")
    with pytest.raises(UserError, match="line 3 gives client b finish_time 90, line 2 gives 100"):
        read_availability(path)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (np.array([b"a", b"b"]), "client_id is .*; it must be one row of whole numbers or of text"),
        (np.array([["a"], ["b"]]), "it must be one row of whole numbers or of text"),
        (np.array(["a", ""]), "row 1 has no client_id"),
        (np.array(["b", "b"]), "row 1 repeats client id b"),
        (np.frombuffer(b"\xff\xff\xff\x7fb\0\0\0", "<U1"), "row 0 has a client_id that is no text"),
    ],
)
def test_arrays_that_name_no_clients_are_refused(tmp_path: Path, ids: np.ndarray, words: str) -> None:
    path = tmp_path / "c.npz"
    np.savez(path, client_id=ids, computation_ms_per_sample=[3.0, 4.0], communication_kbps=[5.5, 6.0])
    with pytest.raises(UserError, match=words):
        read_capacity(path)


def test_long_whole_numbers_of_an_array_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    ids = np.array([2**62 + 1, 2**62])
    np.savez(path, client_id=ids, computation_ms_per_sample=[3.0, 4.0], communication_kbps=[5.5, 6.0])
    assert read_capacity(path).client_id.tolist() == ids.tolist()
