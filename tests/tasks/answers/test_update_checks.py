"""What an executor may say of a unit: everything else is refused, counted, and harms no one else."""

import json
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fedscale.cloud import commons
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.failures import diverged
from fedscale_ext.core.types import State, Task, WorkItem
from fedscale_ext.server.round.collect import SUM, Collector
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks import calibrate
from fedscale_ext.tasks.answers.update_checks import (
    Rejected,
    check_training_report,
    checked_state,
    fault_in_state,
)
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.tasks.reduction import UnitSum
from fedscale_ext.training.update_norms import TOO_FAR
from fedscale_ext.transport import wire
from fedscale_ext.transport.units import Unit

REFERENCE = {"w": torch.zeros(2, 2), "n": torch.tensor(3)}
FIGURES = {"samples": 10, "trained": 20, "steps": 4, "loss": 0.5, "utility": 1.0}
TASK = Task((1, 4, 4), 3, np.array([10, 20, 3]), np.array([2, 2, 0]), local_steps=4, batch_size=5)


def test_a_faithful_update_passes() -> None:
    assert fault_in_state({"w": torch.ones(2, 2), "n": torch.tensor(7)}, REFERENCE) is None
    check_training_report(FIGURES, 10, 4, 20)


@pytest.mark.parametrize(
    "state",
    [
        {"w": torch.ones(2, 2)},
        {"w": torch.ones(2, 2), "n": torch.tensor(1), "more": torch.tensor(1)},
        {"w": torch.ones(2, 3), "n": torch.tensor(1)},
        {"w": torch.ones(2, 2).double(), "n": torch.tensor(1)},
        {"w": torch.full((2, 2), float("nan")), "n": torch.tensor(1)},
        {"w": torch.full((2, 2), float("inf")), "n": torch.tensor(1)},
    ],
)
def test_wrong_states_are_named(state: dict) -> None:
    assert fault_in_state(state, REFERENCE)
    with pytest.raises(Rejected):
        checked_state(wire.tensors_to_bytes(state), REFERENCE, None)


def test_large_numbers_are_finite_and_one_nan_is_named() -> None:
    large = {"a": torch.full((2, 3), 1e308, dtype=torch.float64), "b": torch.zeros(4), "n": torch.tensor(3)}
    assert fault_in_state(large, large) is None
    odd = torch.tensor([0.0, 1.0, math.nan, 0.0])
    for a in (large["a"], torch.zeros_like(large["a"])):
        assert fault_in_state({**large, "a": a, "b": odd}, large) == (diverged("a tensor is not finite"), "b")


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 11},
        {"samples": True},
        {"trained": 21},
        {"trained": 0},
        {"trained": -5},
        {"trained": 10**4000},
        {"steps": 1.5},
        {"steps": 3},
        {"steps": 5},
        {"loss": float("nan")},
        {"loss": "0.5"},
        {"loss": 10**400},  # math.isfinite would raise an OverflowError
        {"loss": -(10**400)},
        {"loss": 1e300},  # finite, but the sum of two of them times their samples is not
        {"loss": True},
        {"utility": float("inf")},
        {"utility": -1.0},
        {"utility": None},
    ],
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values()))!s:.8}",
)
def test_wrong_figures_are_named(change: dict) -> None:
    with pytest.raises(Rejected, match=next(iter(change))):
        check_training_report({**FIGURES, **change}, 10, 4, 20)


# ---- a round's collector ----


def pool() -> ModelPool:
    entries = ModelPool()
    spec = models.named_spec("nasbench201_base", (1, 8, 8), 3)
    entries.add("m", spec, models.initial_state(spec, 1))
    return entries


POOL = pool()
UNIT = [WorkItem(1, "m"), WorkItem(2, "m", overrides={"local_steps": 7})]
START = POOL["m"].state


def result(client: int, **changed: Any) -> dict[str, Any]:
    steps = 7 if client == 2 else 4
    plain = {"client": client, "samples": int(TASK.train_sizes[client - 1]), "trained": 5 * steps, "steps": steps}
    return {**plain, "loss": 1.0, "utility": 2.0, **changed}


def summed(step: float = 0.01, weight: float = 30.0) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The result of ``UNIT``: both clients' states are ``step`` from the start in each entry."""
    change = {name: torch.full(x.shape, weight * step if x.is_floating_point() else 0.0) for name, x in START.items()}
    return {"results": [result(1), result(2)], "weight": weight}, {SUM: wire.tensors_to_bytes(change)}


def collector(max_norm: float | None = None) -> Collector:
    config = SimpleNamespace(job=SimpleNamespace(max_update_norm=max_norm))
    job: Any = SimpleNamespace(config=config, pool=POOL, task=TASK, returns="sum")
    return Collector(3, UNIT, job, lambda item: float(TASK.train_sizes[item.client - 1]), None)


def test_a_unit_counts_with_the_steps_that_its_objective_asked_for() -> None:
    takes = collector()
    takes.take(UNIT, *summed())
    updates, means = takes.close()
    assert [(update.client, update.steps) for update in updates] == [(1, 4), (2, 7)]
    assert not takes.failed
    floating = [name for name, x in START.items() if x.is_floating_point()]
    assert all(torch.allclose(means["m"].state()[name], START[name] + 0.01, atol=1e-6) for name in floating)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"results": None},
        {"results": {"client": 1}},
        {"results": [None, 3, [], {}, {"client": [1]}, {"client": {"a": 1}}, {"client": "1"}]},
        {"results": [{"client": 1}, {"client": 2}], "weight": {"a": []}},
        {"results": [{"client": 1, "failed": {"a": "b" * 10**5}}, {"client": 2, "failed": None}]},
        {"results": [result(1), result(1), result(2)], "weight": [30.0]},
        {"results": [result(1), result(2)], "weight": 31.0},
        {"results": [result(1), result(2)]},
        {"results": [result(3)], "weight": 3.0},
        {"results": [result(1, samples=9), result(2)], "weight": 30.0},
    ],
    ids=range(11),
)
def test_no_header_can_do_more_than_lose_its_own_unit(header: dict[str, Any]) -> None:
    takes = collector()
    takes.take(UNIT, json.loads(json.dumps(header)), summed()[1])
    updates, means = takes.close()
    assert updates == [] and means == {}
    assert takes.failed.total() >= len(UNIT)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    key=st.sampled_from(["client", "samples", "trained", "steps", "loss", "utility", "failed"]),
    value=json_values,
    weight=json_values | st.just(30.0),
    damage=st.tuples(st.integers(0, 10**6), st.integers(1, 255)),
)
def test_any_figure_and_any_damaged_sum_end_in_a_count(key: str, value: Any, weight: Any, damage: Any) -> None:
    header, sections = summed()
    header["results"][0][key] = value
    header["weight"] = weight
    bytes_ = bytearray(sections[SUM])
    bytes_[damage[0] % len(bytes_)] ^= damage[1]
    takes = collector()
    takes.take(UNIT, header, {SUM: bytes(bytes_)})
    updates, means = takes.close()
    assert len(updates) in (0, 2)
    assert len(updates) + takes.failed.total() >= 2
    assert all(bool(torch.isfinite(x).all()) for state in means.values() for x in state.values())


def test_reasons_are_few_and_short_whatever_executors_say() -> None:
    takes = collector()
    for number in range(300):
        takes._open = {(item.client, item.model): item for item in UNIT}
        answer = {"client": 1, "failed": f"reason {number}\n\x1b[31m" + "long " * 99}
        takes.take(UNIT, {"results": [answer, {**answer, "client": 2}]}, {})
    assert len(takes.failed) <= 21
    assert takes.failed.total() == 600
    assert takes.failed["other reasons"] == 560
    assert all(len(reason) <= 120 and reason.isprintable() for reason in takes.failed)


# ---- the bound of a change's norm ----


def moved(step: float) -> State:
    return {name: x + step if x.is_floating_point() else x for name, x in START.items()}


def test_executors_refuse_a_change_that_is_too_long_and_sum_the_others() -> None:
    entries = sum(x.numel() for x in START.values() if x.is_floating_point())
    bound = 0.1 * math.sqrt(entries)
    rows = [moved(0.09), moved(0.11), moved(-0.09)]
    total = UnitSum(START, max_norm=bound)
    faults = total.add({name: torch.stack([row[name] for row in rows]) for name in START}, [1.0, 1.0, 2.0])
    assert faults == [None, TOO_FAR, None]
    assert total.weight == 3.0
    change = total.change()
    name = next(name for name, x in START.items() if x.is_floating_point())
    assert torch.allclose(change[name], torch.full_like(change[name], -0.09), atol=1e-5)
    assert UnitSum(START).add({name: rows[1][name][None] for name in START}, [1.0]) == [None]


def test_the_aggregator_bounds_what_a_units_clients_can_add_up_to() -> None:
    entries = sum(x.numel() for x in START.values() if x.is_floating_point())
    for step, taken in ((0.0999, 2), (0.1001, 0)):
        takes = collector(0.1 * math.sqrt(entries))
        takes.take(UNIT, *summed(step))
        assert len(takes.close()[0]) == taken
        assert takes.failed == ({} if taken else {"its sum is longer than its clients' changes may be": 2})


def test_states_that_come_one_by_one_are_bounded_one_by_one() -> None:
    entries = sum(x.numel() for x in START.values() if x.is_floating_point())
    bound = 0.1 * math.sqrt(entries)
    checked_state(wire.tensors_to_bytes(moved(0.0999)), START, bound)
    with pytest.raises(Rejected, match="max_update_norm"):
        checked_state(wire.tensors_to_bytes(moved(0.1001)), START, bound)


# ---- tests and measurements ----


def columns(**changed: Any) -> dict[str, bytes]:
    plain = {"correct": [1.0, 2.0], "top5": [2.0, 2.0], "loss": [0.5, math.nan]}
    return {
        "figures": wire.tensors_to_bytes(
            {name: torch.as_tensor(value) if isinstance(value, torch.Tensor) else torch.tensor(value).double()
             for name, value in {**plain, **changed}.items() if value is not None}
        )
    }  # fmt: skip


TEST = Unit(1, commons.MODEL_TEST, {"clients": [1, 2]}, ("m",))


def test_possible_figures_pass_and_a_loss_may_be_none() -> None:
    check_answer(kinds_by_event(), TEST, {}, columns(), TASK.test_sizes)


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"figures": b"no tensors"},
        columns(correct=None),
        columns(more=[1.0, 2.0]),
        columns(correct=[1.0]),
        columns(correct=[3.0, 1.0]),
        columns(correct=[-1.0, 1.0]),
        columns(correct=[0.5, 1.0]),
        columns(correct=[2.0, 2.0], top5=[1.0, 2.0]),
        columns(correct=[math.nan, 1.0]),
        columns(top5=torch.tensor([2, 2])),
    ],
    ids=range(11),
)
def test_impossible_tests_are_refused(sections: dict[str, bytes]) -> None:
    with pytest.raises(wire.WireError):
        check_answer(kinds_by_event(), TEST, {}, sections, TASK.test_sizes)


@pytest.mark.parametrize(
    "measured", [None, {}, [], [[1]], [[3, 0.1]], [[1, -0.1]], [[1, math.inf]], [["1", 0.1]], [[1, 1]], 7]
)
def test_impossible_measurements_are_refused(measured: Any) -> None:
    measure = Unit(1, calibrate.EVENT, {"sizes": [1, 4, 8]}, ("m",))
    check_answer(kinds_by_event(), measure, {"seconds_by_size": [[1, 0.2], [4, 0.1]]}, {}, TASK.test_sizes)
    with pytest.raises(wire.WireError):
        check_answer(kinds_by_event(), measure, {"seconds_by_size": measured}, {}, TASK.test_sizes)


def test_reasons_of_all_rounds_are_few_in_the_summary() -> None:
    from fedscale_ext.metrics.summary import JobResult, summarise
    from tests import synthetic_job as job

    records = job.records(50)
    for number, record in enumerate(records):
        record.failed = dict(Counter({f"reason {number}": 2}))
    failed = summarise(job.header(), job.models(), JobResult(records))["clients"]["failed"]
    assert len(failed) <= 21 and sum(failed.values()) == 100
