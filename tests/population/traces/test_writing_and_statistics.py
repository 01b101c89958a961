"""Traces written and read again, of either kind, and the figures that describe them."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.population import load_population
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.notes import availability_note
from fedscale_ext.population.traces.reading import read_availability, read_trace
from fedscale_ext.population.traces.resampling import resample_availability, resample_capacity
from fedscale_ext.population.traces.statistics import histogram, online
from fedscale_ext.population.traces.writing import write_trace

CAPACITY = CapacityTrace(np.array([7, 2**50]), np.array([0.1 + 0.2, 41.0]), np.array([1e-9, 204056.7]))
positive = st.floats(1e-300, 1e300, allow_nan=False)


def availability(*clients: list[tuple[float, float]], finish: float = 100.0) -> AvailabilityTrace:
    intervals = [interval for client in clients for interval in client]
    return AvailabilityTrace(
        np.arange(len(clients)),
        np.cumsum([0, *map(len, clients)]),
        np.array([begin for begin, _ in intervals], np.float64),
        np.array([end for _, end in intervals], np.float64),
        np.full(len(clients), finish),
    )


def equal(one: object, other: object) -> bool:
    return type(one) is type(other) and all(np.array_equal(vars(one)[name], vars(other)[name]) for name in vars(one))


@pytest.mark.parametrize("ending", [".npz", ".csv"])
def test_what_is_written_is_read_the_same(tmp_path: Path, ending: str) -> None:
    for number, trace in enumerate(
        [
            CAPACITY,
            availability([(0, 0.1), (1 / 3, 50)], [(7, 3)]),
            resample_capacity(9, 1),
            resample_availability(9, 1),
        ]
    ):
        path = tmp_path / "new" / f"{number}{ending}"
        write_trace(path, trace)
        assert equal(read_trace(path), trace)
    assert len(list((tmp_path / "new").iterdir())) == 4  # nothing else is left lying


@settings(max_examples=40)
@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=5))
def test_numbers_survive_the_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "c.csv"
    columns = np.array(rows).T
    trace = CapacityTrace(np.arange(len(rows)), columns[0], columns[1])
    write_trace(path, trace)
    assert equal(read_trace(path), trace)


def test_a_client_who_is_never_online_stays_one_in_a_csv(tmp_path: Path) -> None:
    trace = availability([], [(5, 9)], [])
    write_trace(tmp_path / "a.csv", trace)
    again = read_availability(tmp_path / "a.csv")
    assert again.client_id.tolist() == [0, 1, 2]
    assert again.offsets.tolist() == trace.offsets.tolist() and availability_note(again, "a.csv") == (
        availability_note(trace, "a.csv")
    )
    for time in (0.0, 0.5, 1.0, 5.0, 8.0, 50.0):
        assert Availability(again, 3).online(time).tolist() == Availability(trace, 3).online(time).tolist()


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        write_trace(tmp_path / name, resample_availability(50, 3))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in .npz or .csv"):
        write_trace(tmp_path / "a.pickle", CAPACITY)
    write_trace(tmp_path / "a.csv", CAPACITY)
    with pytest.raises(UserError, match="exists: name another file or add --force"):
        write_trace(tmp_path / "a.csv", CAPACITY)
    write_trace(tmp_path / "a.csv", resample_capacity(3, 1), force=True)
    assert len(read_trace(tmp_path / "a.csv")) == 3
    with pytest.raises(UserError, match="cannot be written"):
        write_trace(tmp_path / "a.csv" / "b.csv", CAPACITY)


@pytest.mark.parametrize("ending", [".npz", ".csv"])
def test_a_job_says_that_devices_in_a_file_were_resampled(tmp_path: Path, ending: str) -> None:
    capacity, behaviour = tmp_path / f"c{ending}", tmp_path / f"a{ending}"
    write_trace(capacity, resample_capacity(4, 1))
    write_trace(behaviour, resample_availability(4, 1))
    source = load_population(list("abcd"), str(capacity), str(behaviour), 1).source
    assert source == f"resampled, in {capacity} by order, online by resampling, in {behaviour} by order"
    write_trace(capacity, CAPACITY, force=True)
    assert load_population(["a", "b"], str(capacity), None, 1).source == f"traced: {capacity} by order"


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(pickle.dumps({3: {"computation": 41, "communication": 5.5}}))
    assert isinstance(read_trace(path), CapacityTrace)
    entry = {"duration": 9, "active": [1], "inactive": [4], "finish_time": 9, "model": "x"}
    path.write_bytes(pickle.dumps({3: entry}))
    assert isinstance(read_trace(path), AvailabilityTrace)
    for content in ({}, {3: {}}, {3: {"speed": 1}}):
        path.write_bytes(pickle.dumps(content))
        with pytest.raises(UserError, match="neither computation"):
            read_trace(path)
    (tmp_path / "a.csv").write_text("client_id,speed\n1,2\n")
    np.savez(tmp_path / "a.npz", speed=np.ones(3))
    (tmp_path / "b.npz").write_bytes(b"PK")
    for name, words in (("a.csv", "neither computation"), ("a.npz", "neither computation"), ("b.npz", "not a whole")):
        with pytest.raises(UserError, match=words):
            read_trace(tmp_path / name)


def test_a_quoted_header_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('"client_id","computation","communication"\n"1",20,5000\n')
    assert isinstance(read_trace(path), CapacityTrace)
    path.write_text('"client_id","active","inactive","finish_time"\r\n"1",20,5000,86400\r\n')
    assert isinstance(read_trace(path), AvailabilityTrace)


def test_figures_of_availability_by_hand() -> None:
    hour = 3600.0
    figures = online(
        availability(
            [(0, 6 * hour), (5 * hour, 12 * hour)],  # overlap: half of the day
            [],
            [(23 * hour, 30 * hour), (9 * hour, 8 * hour), (25 * hour, 26 * hour)],  # the day's last hour; two are void
            [(0, 24 * hour)],
            finish=24 * hour,
        )
    )
    assert figures.share.tolist() == [0.5, 0, 1 / 24, 1]
    assert figures.intervals.tolist() == [2, 0, 1, 1]
    assert figures.minutes.tolist() == [360, 420, 60, 1440]
    assert figures.by_hour.tolist() == [0.5] * 12 + [0.25] * 11 + [0.5]


def test_hours_count_short_intervals() -> None:
    """Five minutes of each hour, none of them at its middle."""
    figures = online(availability([(0, 300)], [(300, 600)], finish=3600))
    np.testing.assert_allclose(figures.by_hour, np.full(24, 1 / 12))


@settings(max_examples=30)
@given(st.lists(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 120)), max_size=6), min_size=1, max_size=5))
def test_shares_are_those_of_a_count(clients: list[list[tuple[float, float]]]) -> None:
    trace = availability(*clients)
    times = np.arange(0.5, 100)
    counted = np.mean([Availability(trace, len(clients)).online(time) for time in times], axis=0)
    np.testing.assert_allclose(online(trace).share, counted, atol=1e-9)


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=50), st.booleans())
def test_histograms_count_everybody(values: list[float], log: bool) -> None:
    counts, edges = histogram(np.array(values), 10, log=log)
    assert counts.sum() == len(values) and len(edges) == len(counts) + 1
