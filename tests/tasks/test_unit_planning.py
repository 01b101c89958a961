import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.types import Task, WorkItem
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.unit_planning import in_parts, plan_units

SHAPE = (1, 8, 8)


def pool() -> ModelPool:
    entries = ModelPool()
    for key, name in (("small", "nasbench201_base"), ("large", "cnn_leaf")):
        spec = models.named_spec(name, SHAPE, 4)
        entries.add(key, spec, models.initial_state(spec, 1))
    return entries


POOL = pool()


def task(sizes: np.ndarray) -> Task:
    return Task(SHAPE, 4, sizes, sizes, local_steps=20, batch_size=10)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    clients=st.integers(1, 300),
    cohort=st.sampled_from([1, 4, 16]),
    unit_size=st.one_of(st.none(), st.integers(1, 9)),
    seed=st.integers(0, 5),
)
def test_every_client_is_in_one_unit_of_its_model(clients: int, cohort: int, unit_size: int | None, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, clients)
    items = [WorkItem(c, str(rng.choice(["small", "large"]))) for c in range(1, clients + 1)]
    units = plan_units(items, POOL, task(sizes), lambda _: cohort, unit_size)
    assert sorted(item.client for unit in units for item in unit) == list(range(1, clients + 1))
    for unit in units:
        assert len({item.model for item in unit}) == 1
        batches = [min(10, sizes[item.client - 1]) for item in unit]
        assert batches == sorted(batches, reverse=True)
    costs = [POOL[unit[0].model].cost.forward_macs * len(unit) for unit in units]
    assert costs == sorted(costs, reverse=True)


def test_units_are_alike_and_end_together_on_two_or_four_executors() -> None:
    items = [WorkItem(client, "small") for client in range(1, 101)]
    sizes = np.full(100, 50)
    for cohort, expected in ((1, {12, 13}), (16, {12, 13}), (40, {25}), (200, {25})):
        units = plan_units(items, POOL, task(sizes), lambda _, size=cohort: size, None)
        assert {len(unit) for unit in units} == expected and len(units) % 4 == 0


def test_a_small_round_has_work_for_every_executor() -> None:
    items = [WorkItem(client, "small") for client in range(1, 13)]
    for cohort in (1, 16):
        units = plan_units(items, POOL, task(np.full(12, 50)), lambda _, size=cohort: size, None)
        assert [len(unit) for unit in units] == [3, 3, 3, 3]
    assert len(plan_units(items, POOL, task(np.full(12, 50)), lambda _: 16, None, spread=1)) == 1


@pytest.mark.parametrize(("unit_size", "lengths"), [(12, [12]), (5, [4, 4, 4]), (1, [1] * 12)])
def test_a_size_that_is_asked_for_holds_in_a_small_round(unit_size: int, lengths: list[int]) -> None:
    items = [WorkItem(client, "small") for client in range(1, 13)]
    units = plan_units(items, POOL, task(np.full(12, 50)), lambda _: 1, unit_size)
    assert [len(unit) for unit in units] == lengths


def test_a_large_round_has_larger_units_not_more() -> None:
    items = [WorkItem(client, "small") for client in range(1, 5001)]
    for cohort in (1, 16):
        units = plan_units(items, POOL, task(np.full(5000, 50)), lambda _, size=cohort: size, 5)
        assert 40 <= len(units) <= 68


def test_different_objectives_do_not_share_a_unit_but_different_steps_do() -> None:
    items = [
        WorkItem(1, "small", overrides={"prox_mu": 0.1, "local_steps": 5}),
        WorkItem(2, "small", overrides={"prox_mu": 0.1}),
        WorkItem(3, "small", overrides={"prox_mu": 0.2}),
    ]
    units = plan_units(items, POOL, task(np.full(3, 50)), lambda _: 4, 5, spread=1)
    # falling steps: client 2 trains the job's 20
    assert [[item.client for item in unit] for unit in units] == [[2, 1], [3]]


def test_parts_cover_a_group() -> None:
    assert [list(part) for part in in_parts(range(7), 3)] == [[0, 1], [2, 3], [4, 5, 6]]
