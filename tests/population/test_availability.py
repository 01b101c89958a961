import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.population.availability import Availability

TIMES = st.integers(0, 40).map(float)
DEVICE = st.tuples(
    st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=4),
    st.integers(5, 45).map(float),
).map(lambda pair: ([one for one, _ in pair[0]], [other for _, other in pair[0]], pair[1]))


def plain(device: tuple[list, list, float], time: float) -> bool:
    begins, ends, period = device
    return any(begin <= time % period <= end for begin, end in zip(begins, ends, strict=True))


@settings(deadline=None, derandomize=True, max_examples=200)
@given(devices=st.lists(DEVICE, min_size=1, max_size=5), times=st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_online_is_a_function_of_time_alone(devices: list, times: list) -> None:
    # FedScale's is_active only moves forward: a later question changes the answer to an earlier one (defect 3)
    availability = Availability.from_intervals(devices)
    for time in [*times, *reversed(times)]:
        expected = [plain(device, time) for device in devices]
        assert availability.online(time).tolist() == expected
        everybody = np.arange(len(devices))
        assert availability.online_at(everybody, np.full(len(devices), float(time))).tolist() == expected


@settings(deadline=None, derandomize=True, max_examples=200)
@given(devices=st.lists(DEVICE, min_size=1, max_size=4), time=st.integers(0, 100), data=st.data())
def test_the_next_time_online_is_the_first_one(devices: list, time: int, data: st.DataObject) -> None:
    availability = Availability.from_intervals(devices)
    among = np.array(data.draw(st.lists(st.booleans(), min_size=len(devices), max_size=len(devices))))
    # all times are whole, so that the first moment online is a whole one
    later = [t for t in range(time, time + 100) if any(plain(d, t) and a for d, a in zip(devices, among, strict=True))]
    found = availability.next_online(time, among)
    assert found == (later[0] if later else None)


def test_each_device_is_asked_about_its_own_time() -> None:
    availability = Availability.from_intervals([([0.0], [10.0], 100.0), ([50.0], [60.0], 100.0)])
    assert availability.online_at(np.array([1, 0, 1]), np.array([55.0, 155.0, 205.0])).tolist() == [True, False, False]


def test_a_choice_of_devices_keeps_their_intervals() -> None:
    devices = [([0.0, 20.0], [5.0, 25.0], 50.0), ([], [], 50.0), ([10.0], [12.0], 30.0)]
    chosen = Availability.from_intervals(devices).take(np.array([2, 0, 0, 1]))
    for time in range(60):
        assert chosen.online(time).tolist() == [plain(devices[i], time) for i in (2, 0, 0, 1)]


@pytest.mark.parametrize("time", [0.0, 3.0, 1e9])
def test_nobody_without_intervals(time: float) -> None:
    nobody = Availability.from_intervals([([], [], 10.0)] * 2)
    assert not nobody.online(time).any()
    assert nobody.next_online(time) is None
