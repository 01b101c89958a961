"""What a round cost: samples, passes forward alone, and the virtual clock agree."""

import numpy as np
import pytest

from fedscale_ext import models
from fedscale_ext.core.types import RoundRecord, Task, Update, WorkItem
from fedscale_ext.population.population import Population
from fedscale_ext.server.round_record import round_record
from fedscale_ext.server.schedule import Schedule, schedule_round
from fedscale_ext.submodels.model_pool import ModelPool

SPEC = models.named_spec("cnn_small", (1, 28, 28), 62)
COST = models.cost(SPEC)
SEEN = 20  # samples of a client's two steps


def played(*items: WorkItem) -> tuple[Schedule, RoundRecord]:
    pool = ModelPool()
    pool.add("m", SPEC, {})
    devices = Population(np.full(3, 100.0), np.full(3, 1e15), None, "test")
    task = Task((1, 28, 28), 62, np.full(3, 50), np.zeros(3), local_steps=2, batch_size=10)
    schedule = schedule_round(
        list(items), pool, devices, task, clock_s=0.0, collect=3, reference_macs=COST.forward_macs
    )
    updates = [Update(item, 1, 0, 50, SEEN, 2, 1.0, 1.0) for item in items]
    record = round_record(
        1, schedule, updates, pool, clock_s=0.0, duration_s=0.0, selected=3, offline=0, failed={}, learning_rate=0.1,
        download=lambda item: 0, upload=lambda item: 0,
        beside={"forward_macs": 0.0, "download_bytes": 0, "upload_bytes": 0},
    )  # fmt: skip
    return schedule, record


def test_a_step_counts_forward_and_backward() -> None:
    _, record = played(WorkItem(1, "m"), WorkItem(2, "m", compute_fraction=0.5))
    assert record.forward_macs == pytest.approx(1.5 * SEEN * COST.forward_macs)
    assert record.training_macs == pytest.approx(1.5 * SEEN * COST.training_macs)


def test_a_pass_without_gradients_counts_as_much_forward_as_in_all() -> None:
    _, plain = played(WorkItem(1, "m"))
    _, more = played(WorkItem(1, "m", forward_fraction=2.5))
    beside = 2.5 * SEEN * COST.forward_macs
    assert more.forward_macs - plain.forward_macs == pytest.approx(beside)
    assert more.training_macs - plain.training_macs == pytest.approx(beside)


def test_it_takes_a_third_of_a_steps_time() -> None:
    seconds = [played(item)[0].durations_s[0] for item in (
        WorkItem(1, "m"), WorkItem(1, "m", forward_fraction=3.0), WorkItem(1, "m", compute_fraction=2.0))]  # fmt: skip
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=1e-6) and seconds[1] == pytest.approx(seconds[2])
