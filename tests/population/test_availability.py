"""Online intervals: FedScale's rule as a pure function of time, its files, and the resampled ones."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.traces.reading import read_availability
from fedscale_ext.population.traces.resampling import marginals, resample_availability

SAMPLES = Path(__file__).resolve().parents[2] / "device_traces"
Intervals = list[tuple[list[float], list[float], float]]


def behave(folder: Path, entries: dict[Any, Any]) -> Path:
    path = folder / "client_behave_trace"
    path.write_bytes(pickle.dumps(entries))
    return path


def entry(active: Any, inactive: Any, finish: Any = 1000) -> dict[str, Any]:
    return {"active": active, "inactive": inactive, "finish_time": finish, "duration": 5, "model": "phone"}


def availability(folder: Path, clients: Intervals, num_clients: int | None = None) -> Availability:
    trace = read_availability(behave(folder, {i + 1: entry(*client) for i, client in enumerate(clients)}))
    return Availability(trace, num_clients or len(clients))


def reference(client: tuple[list[float], list[float], float], time: float) -> bool:
    phase = time % client[2]
    return any(begin <= phase <= end for begin, end in zip(client[0], client[1], strict=True))


CLIENTS: Intervals = [([10, 500], [100, 600], 1000), ([], [], 1000), ([0], [700], 700), ([900, 50], [990, 60], 1000)]


@pytest.mark.parametrize("time", [0, 9.999, 10, 55, 100, 100.001, 550, 600, 699, 701, 950, 1010, 123_456, 700_000])
def test_online_is_fedscales_rule(tmp_path: Path, time: float) -> None:
    online = availability(tmp_path, CLIENTS)
    assert online.online(time).tolist() == [reference(client, time) for client in CLIENTS]


def test_an_earlier_time_may_be_asked_after_a_later_one(tmp_path: Path) -> None:
    """FedScale's is_active moves a cursor forward and then denies the intervals before it (defect 3)."""
    online = availability(tmp_path, CLIENTS)
    first = online.online(50)
    online.online(950)
    assert first[0]
    assert (online.online(50) == first).all()


def test_clients_beyond_the_trace_repeat_it_from_its_first_row(tmp_path: Path) -> None:
    few, many = availability(tmp_path, CLIENTS), availability(tmp_path, CLIENTS, 10)
    assert many.size == 10
    assert many.online(50).tolist() == [few.online(50)[i % 4] for i in range(10)]
    assert availability(tmp_path, CLIENTS, 2).online(950).tolist() == few.online(950)[:2].tolist()


times = st.integers(0, 3000).map(lambda tenth: tenth / 10)
clients = st.lists(
    st.tuples(st.lists(st.tuples(times, times), max_size=4), st.sampled_from([100.0, 150.0, 0.7])).map(
        lambda drawn: ([a for a, _ in drawn[0]], [b for _, b in drawn[0]], drawn[1])
    ),
    min_size=1,
    max_size=5,
)


@given(clients=clients, now=st.floats(0, 1e6))
@settings(deadline=None, derandomize=True, max_examples=150)
def test_someone_is_online_when_next_online_says_and_nobody_before(
    tmp_path_factory: pytest.TempPathFactory, clients: Intervals, now: float
) -> None:
    online = availability(tmp_path_factory.mktemp("t"), clients, len(clients) + 2)
    then = online.next_online(now)
    begins = {b for a, ends, period in clients for b, e in zip(a, ends, strict=True) if b <= e and b < period}
    if then is None:
        assert not begins
        assert not online.online(now).any()
    else:
        assert then >= now
        assert online.online(then).any()
        for between in np.linspace(now, then - 2e-6, 7):
            assert then == now or not online.online(between).any()


@given(clients=clients, now=st.lists(st.floats(0, 1e5), min_size=1, max_size=8))
@settings(deadline=None, derandomize=True, max_examples=80)
def test_each_client_at_its_own_time_is_the_same_question(
    tmp_path_factory: pytest.TempPathFactory, clients: Intervals, now: list[float]
) -> None:
    online = availability(tmp_path_factory.mktemp("t"), clients, 9)
    positions = np.arange(len(now)) * 5 % 9
    expected = [online.online(time)[position] for position, time in zip(positions, now, strict=True)]
    assert online.online_at(positions, np.array(now)).tolist() == expected


def test_nobody_online_at_the_start_waits_for_the_first_of_those_asked_for(tmp_path: Path) -> None:
    """FedScale raises IndexError when nobody is online at time 0 (defect 2)."""
    online = availability(tmp_path, [([300], [400], 1000), ([200], [210], 1000), ([], [], 1000)])
    assert not online.online(0).any()
    assert online.next_online(0) == 200
    assert online.next_online(0, np.array([True, False, True])) == 300
    assert online.next_online(450) == 1200
    assert online.next_online(350) == 350
    assert online.next_online(0, np.array([False, False, True])) is None


@given(clients=clients)
@settings(deadline=None, derandomize=True, max_examples=80)
def test_who_is_ever_online_is_online_at_some_time(
    tmp_path_factory: pytest.TempPathFactory, clients: Intervals
) -> None:
    online = availability(tmp_path_factory.mktemp("t"), clients, len(clients) + 2)
    alone = np.eye(online.size, dtype=bool)
    assert online.ever_online().tolist() == [online.next_online(0, client) is not None for client in alone]


@pytest.mark.parametrize(("finish", "now"), [(1e-6, 0.5), (1e12, 5.0)])
def test_the_shortest_and_the_longest_period_still_count(tmp_path: Path, finish: float, now: float) -> None:
    online = availability(tmp_path, [([0], [1e12], finish), ([], [], finish)])
    assert online.online(now).tolist() == [True, False]
    assert online.next_online(now) == now


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (entry([1], [2, 3]), "client 7 has 1 active and 2 inactive times"),
        (entry([1], [float("nan")]), "client 7 has inactive time nan"),
        (entry([-1], [2]), "client 7 has active time -1"),
        (entry([1], ["2"]), "client 7 has inactive time '2'"),
        (entry(1, [2]), "client 7 has active 1; active is a list"),
        (entry([1], [2], 0), "client 7 has finish_time 0"),
        (entry([1], [2], 1e-9), "client 7 has finish_time 1e-09"),
        (entry([1], [2], 1e300), "client 7 has finish_time 1e\\+300"),
        (entry([1], [1e300]), "client 7 has inactive time 1e\\+300"),
        (entry([1], [2], float("inf")), "client 7 has finish_time inf"),
        ({"active": [1], "inactive": [2]}, "client 7 has no 'finish_time'"),
        ({"inactive": [2], "finish_time": 3}, "client 7 has no 'active'"),
        ([1, 2], "client 7 is a list"),
    ],
)
def test_the_first_bad_client_is_named(tmp_path: Path, bad: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_availability(behave(tmp_path, {3: entry([], []), 4: entry([5], [6]), 7: bad}))


def test_csv_and_npz_hold_the_same_as_the_pickle(tmp_path: Path) -> None:
    pickled = read_availability(behave(tmp_path, {5: entry([1, 30], [2, 40]), 3: entry([7.5], [8], 90)}))
    csv, npz = tmp_path / "behave.csv", tmp_path / "behave.npz"
    csv.write_text("client_id,active,inactive,finish_time\n5,1,2,1000\n3,7.5,8,90\n5,30,40,1000\n")
    np.savez(npz, **vars(pickled))
    for path in (csv, npz):
        trace = read_availability(path)
        for name, column in vars(pickled).items():
            np.testing.assert_array_equal(getattr(trace, name), column)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("5,1,2,1000\n5,3,4,900", "line 3 gives client 5 finish_time 900, line 2 gives 1000"),
        ("5,1,2,nan", "client 5 has finish_time nan"),
        ("5,1,inf,10", "client 5 has inactive time inf"),
        ("5,1,2", "line 2 has 3 values for 4 columns"),
        ("", "holds no client"),
    ],
)
def test_bad_csv(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "behave.csv"
    path.write_text("client_id,active,inactive,finish_time\n" + lines + "\n")
    with pytest.raises(UserError, match=words):
        read_availability(path)


@pytest.mark.parametrize("offsets", [[0, 1], [0, 2, 1], [1, 2, 2], [0, 1, 3]])
def test_npz_offsets_that_do_not_fit(tmp_path: Path, offsets: list[int]) -> None:
    path = tmp_path / "behave.npz"
    columns = {"client_id": [1, 2], "active": [1.0, 2], "inactive": [3.0, 4], "finish_time": [9.0, 9]}
    np.savez(path, offsets=offsets, **columns)
    with pytest.raises(UserError, match="offsets must rise"):
        read_availability(path)


def test_resampled_clients_follow_the_published_hours() -> None:
    online = Availability(resample_availability(20_000, 3), 20_000)
    published = marginals()["online_fraction_by_hour"]
    for hour in range(48):
        mean = np.mean([online.online(3600 * hour + minute * 60).mean() for minute in (5, 20, 35, 50)])
        assert mean == pytest.approx(published[hour % 24], abs=0.02)


def test_resampled_intervals_are_ordered_and_depend_on_seed_and_client_only() -> None:
    trace, longer = resample_availability(5_000, 3), resample_availability(9_000, 3)
    assert trace.offsets[-1] > 5_000
    assert (trace.active < trace.inactive).all()
    same_client = np.diff(np.repeat(trace.client_id, np.diff(trace.offsets))) == 0
    assert (trace.active[1:] > trace.inactive[:-1])[same_client].all()
    assert trace.inactive.max() <= 48 * 3600
    np.testing.assert_array_equal(longer.active[: trace.offsets[-1]], trace.active)
    assert not np.array_equal(resample_availability(5_000, 4).offsets, trace.offsets)


def test_the_sample_file_is_readable() -> None:
    assert len(read_availability(SAMPLES / "sample_availability.csv")) == 12
