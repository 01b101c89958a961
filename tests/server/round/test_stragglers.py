import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.types import Task, WorkItem
from fedscale_ext.population.population import Population
from fedscale_ext.server.round.stragglers import Schedule, schedule_round
from fedscale_ext.submodels.model_pool import ModelPool


class Online:
    """Stands for an availability: who is online when it finishes, by position."""

    def __init__(self, there: list[bool]):
        self.there = np.array(there)

    def online_at(self, devices: np.ndarray, times_s: np.ndarray) -> np.ndarray:
        return self.there[devices]


def schedule(latencies: list[float], collect: int, there: list[bool] | None = None, sizes: int = 50) -> Schedule:
    pool = ModelPool()
    spec = models.named_spec("cnn_small", (1, 28, 28), 62)
    pool.add("m", spec, {})
    count = len(latencies)
    devices = Population(np.array(latencies), np.full(count, 1e9), Online(there) if there else None, "test")  # type: ignore[arg-type]
    task = Task((1, 28, 28), 62, np.full(count, sizes), np.zeros(count), local_steps=2, batch_size=10)
    items = [WorkItem(client, "m") for client in range(count, 0, -1)]
    reference = models.cost(spec).forward_macs
    return schedule_round(items, pool, devices, task, clock_s=5.0, collect=collect, reference_macs=reference)


def test_the_fastest_count_in_the_order_of_clients_and_the_last_of_them_ends_the_round() -> None:
    scheduled = schedule([400.0, 100.0, 300.0, 200.0], collect=3)
    assert [item.client for item in scheduled.items] == [2, 3, 4]
    assert scheduled.durations_s == pytest.approx([6.0, 18.0, 12.0], rel=1e-3)
    assert scheduled.duration_s == pytest.approx(18.0, rel=1e-3)
    assert (scheduled.stragglers, scheduled.offline) == (1, 0)
    assert [item.client for item in scheduled.late_items] == [1]


def test_clients_that_go_offline_are_lost() -> None:
    scheduled = schedule([400.0, 100.0, 300.0], collect=3, there=[True, False, True])
    assert [item.client for item in scheduled.items] == [1, 3]
    assert (scheduled.stragglers, scheduled.offline) == (0, 1)
    assert [item.client for item in scheduled.lost_items] == [2] and not scheduled.late_items


def test_the_clock_moves_on_when_all_go_offline() -> None:
    scheduled = schedule([400.0, 100.0], collect=2, there=[False, False])
    assert not scheduled.items
    assert scheduled.duration_s == pytest.approx(24.0, rel=1e-3)


def test_a_round_lasts_as_long_as_its_slowest_client_even_below_a_second() -> None:
    assert schedule([1.0, 2.0], collect=2).duration_s == pytest.approx(0.12, rel=0.1)
    assert schedule([], collect=2).duration_s == 0.0


def test_small_clients_compute_less() -> None:
    assert schedule([100.0], 1, sizes=5).duration_s == pytest.approx(schedule([100.0], 1).duration_s / 2, rel=1e-3)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(data=st.data())
def test_the_choice_is_that_of_the_plain_loop(data: st.DataObject) -> None:
    latencies = data.draw(st.lists(st.sampled_from([100.0, 200.0, 300.0]), min_size=1, max_size=12))
    there = data.draw(st.lists(st.booleans(), min_size=len(latencies), max_size=len(latencies)))
    collect = data.draw(st.integers(1, 12))
    scheduled = schedule(latencies, collect, there)
    online = sorted((seconds, client) for client, seconds in enumerate(latencies, 1) if there[client - 1])
    assert [item.client for item in scheduled.items] == sorted(client for _, client in online[:collect])
    assert scheduled.stragglers == max(0, len(online) - collect)
    assert scheduled.offline == there.count(False)


def test_a_client_with_several_items_takes_the_sum_of_their_times_and_counts_once() -> None:
    pool = ModelPool()
    small, large = (models.named_spec(name, (1, 28, 28), 62) for name in ("cnn_small", "cnn_leaf"))
    for key, spec in (("s", small), ("t", small), ("l", large)):
        pool.add(key, spec, {})
    devices = Population(np.array([300.0, 100.0, 200.0]), np.array([50.0, 1e3, 1e4]), None, "test")
    task = Task((1, 28, 28), 62, np.array([50, 4, 50]), np.zeros(3), local_steps=2, batch_size=10)

    def timed(*items: tuple[int, str], collect: int = 9) -> Schedule:
        reference = models.cost(small).forward_macs
        work = [WorkItem(client, key) for client, key in items]
        return schedule_round(work, pool, devices, task, clock_s=0.0, collect=collect, reference_macs=reference)

    alone = {(c, key): timed((c, key)).duration_s for c in (1, 2, 3) for key in ("s", "t", "l")}
    scheduled = timed((3, "l"), (1, "t"), (3, "s"), (2, "s"), (1, "s"))
    expected = [alone[1, "s"] + alone[1, "t"], alone[2, "s"], alone[3, "s"] + alone[3, "l"]]
    assert scheduled.durations_s.tolist() == pytest.approx(expected, rel=1e-12)
    assert scheduled.duration_s == pytest.approx(max(expected), rel=1e-12)
    assert [(item.client, item.model) for item in scheduled.items] == [(1, "t"), (1, "s"), (2, "s"), (3, "l"), (3, "s")]
    # who is left out is left out with all items, and is one straggler
    order = sorted((1, 2, 3), key=lambda client: expected[client - 1])
    fastest = timed((3, "l"), (1, "t"), (3, "s"), (2, "s"), (1, "s"), collect=2)
    assert sorted({item.client for item in fastest.items}) == sorted(order[:2])
    assert (len(fastest.items), fastest.stragglers) == (5 - 2, 1)
