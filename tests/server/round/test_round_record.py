"""What a round cost: samples, passes forward alone, and the virtual clock agree."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.types import RoundRecord, Task, Update, WorkItem
from fedscale_ext.metrics.job_folder.round_records import trained_clients
from fedscale_ext.population.population import Population
from fedscale_ext.server.round.round_record import OtherWork, round_record
from fedscale_ext.server.round.stragglers import Schedule, schedule_round
from fedscale_ext.submodels.model_pool import ModelPool

SPEC = models.named_spec("cnn_small", (1, 28, 28), 62)
COST = models.cost(SPEC)
SEEN = 20  # samples of a client's two steps


def played(
    *items: WorkItem,
    failed: Sequence[int] = (),
    download_bytes: Callable[[WorkItem], int] = lambda item: 0,
    upload_bytes: Callable[[WorkItem], int] = lambda item: 0,
    other_work: OtherWork | None = None,
) -> tuple[Schedule, RoundRecord]:
    pool = ModelPool()
    pool.add("m", SPEC, {})
    devices = Population(np.full(3, 100.0), np.full(3, 1e15), None, "test")
    task = Task((1, 28, 28), 62, np.full(3, 50), np.zeros(3), local_steps=2, batch_size=10)
    schedule = schedule_round(
        list(items), pool, devices, task, clock_s=0.0, collect=3, reference_macs=COST.forward_macs
    )
    updates = [Update(item, 50, SEEN, 2, 1.0, 1.0) for item in items if item.client not in failed]
    record = round_record(
        1, schedule, updates, pool, clock_s=5.0, selected=3, offline=0, failed={}, learning_rate=0.1,
        download_bytes=download_bytes, upload_bytes=upload_bytes,
        other_work=other_work or OtherWork(),
    )  # fmt: skip
    return schedule, record


def test_a_step_counts_forward_and_backward() -> None:
    _, record = played(WorkItem(1, "m"), WorkItem(2, "m", compute_fraction=0.5))
    assert record.forward_macs == pytest.approx(1.5 * SEEN * COST.forward_macs)
    assert record.training_macs == pytest.approx(1.5 * SEEN * COST.training_macs)


def test_a_step_may_count_another_share_of_the_backward_pass() -> None:
    _, record = played(WorkItem(1, "m"), WorkItem(2, "m", compute_fraction=0.5, training_fraction=0.4))
    assert record.forward_macs == pytest.approx(1.5 * SEEN * COST.forward_macs)
    assert record.training_macs == pytest.approx(1.4 * SEEN * COST.training_macs)


def test_a_pass_without_gradients_counts_as_much_forward_as_in_all() -> None:
    _, plain = played(WorkItem(1, "m"))
    _, more = played(WorkItem(1, "m", forward_fraction=2.5))
    beside = 2.5 * SEEN * COST.forward_macs
    assert more.forward_macs - plain.forward_macs == pytest.approx(beside)
    assert more.training_macs - plain.training_macs == pytest.approx(beside)


def test_participants_that_do_not_train_are_told_apart() -> None:
    items = WorkItem(1, "m", trains=False), WorkItem(2, "m"), WorkItem(3, "m", trains=False)
    _, record = played(*items, failed=[3])
    assert (record.participants, record.untrained) == ([1, 2], [1])
    assert trained_clients([record]) == {2}
    _, later = played(WorkItem(1, "m"))
    assert later.untrained == [] and trained_clients([record, later]) == {1, 2}


def test_it_takes_a_third_of_a_steps_time() -> None:
    seconds = [played(item)[0].durations_s[0] for item in (
        WorkItem(1, "m"), WorkItem(1, "m", forward_fraction=3.0), WorkItem(1, "m", compute_fraction=2.0))]  # fmt: skip
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=1e-6) and seconds[1] == pytest.approx(seconds[2])


def test_each_participant_has_what_its_round_cost() -> None:
    """Client 2 has two items, client 3 failed, and client 1 uploads less than it downloads."""
    items = [WorkItem(1, "m"), WorkItem(2, "m"), WorkItem(2, "m", compute_fraction=0.5), WorkItem(3, "m")]
    download = {1: 7, 2: 10, 3: 1000}
    schedule, record = played(
        *items,
        failed=[3],
        download_bytes=lambda item: download[item.client],
        upload_bytes=lambda item: item.client,
        other_work=OtherWork(seconds=3.0, download_bytes=100, upload_bytes=50),
    )
    assert record.participants == [1, 2]
    assert (record.client_download_bytes, record.client_upload_bytes) == ([7, 20], [1, 4])
    assert (record.download_bytes, record.upload_bytes) == (7 + 20 + 1000 + 100, 1 + 4 + 50)
    assert record.client_computation_s == schedule.computation_s[:2].tolist()
    assert record.client_communication_s == schedule.communication_s[:2].tolist()
    assert record.client_durations_s == schedule.durations_s.tolist()
    assert record.round_duration_s == schedule.duration_s + 3.0
    assert record.virtual_clock_s == 5.0 + record.round_duration_s
    assert record.client_computation_s[1] == pytest.approx(1.5 * record.client_computation_s[0])


@settings(deadline=None, derandomize=True, max_examples=100)
@given(data=st.data())
def test_the_costs_of_participants_are_those_of_their_items(data: st.DataObject) -> None:
    clients = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=6))
    down, up = (data.draw(st.lists(st.integers(0, 99), min_size=len(clients), max_size=len(clients))) for _ in range(2))
    failed = data.draw(st.sets(st.integers(1, 3)))
    items = [WorkItem(client, "m", {"number": number}) for number, client in enumerate(clients)]
    _, record = played(
        *items,
        failed=sorted(failed),
        download_bytes=lambda item: down[item.objective["number"]],
        upload_bytes=lambda item: up[item.objective["number"]],
    )
    assert record.participants == sorted(set(clients) - failed)
    sums = [
        [sum(one for client, one in zip(clients, values, strict=True) if client == each) for values in (down, up)]
        for each in record.participants
    ]
    assert sums == [list(pair) for pair in zip(record.client_download_bytes, record.client_upload_bytes, strict=True)]
    assert len(record.client_computation_s) == len(record.client_communication_s) == len(record.participants)
    if not failed.intersection(clients):
        assert sum(record.client_download_bytes) == record.download_bytes
        assert sum(record.client_upload_bytes) == record.upload_bytes
