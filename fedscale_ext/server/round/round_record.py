"""What a round was and what it cost, as one record."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.types import RoundRecord, Update, WorkItem
from fedscale_ext.server.round.stragglers import Schedule
from fedscale_ext.submodels.model_pool import ModelPool


@dataclass(frozen=True)
class OtherWork:
    """What else than training clients did in a round, summed over them; ``seconds`` are virtual ones that it lasted."""

    seconds: float = 0.0
    forward_macs: float = 0.0
    download_bytes: int = 0
    upload_bytes: int = 0


def round_record(
    round: int,
    schedule: Schedule,
    updates: Sequence[Update],
    pool: ModelPool,
    *,
    clock_s: float,
    selected: int,
    offline: int,
    failed: Mapping[str, int],
    learning_rate: float,
    download_bytes: Callable[[WorkItem], int],
    upload_bytes: Callable[[WorkItem], int],
    other_work: OtherWork,
) -> RoundRecord:
    """Describe a round whose clients have trained; what comes after that is added by whoever does it.

    Args:
        round: its number.
        schedule: whose work counted, and how long it took.
        updates: what the clients reported.
        pool: the models that they trained.
        clock_s: the virtual clock at its beginning.
        selected: how many clients were selected.
        offline: how many could not be selected because they were offline.
        failed: how many failed, by reason.
        learning_rate: the clients' in this round.
        download_bytes: bytes that a client downloads for an item.
        upload_bytes: bytes that a client uploads for an item.
        other_work: what clients did in addition to training (``MethodTools.charge``).

    """
    cost = {model.key: model.cost for model in pool}
    trained = (pool[update.item.model] for update in updates)
    assignments = Counter(model.whole if model.transient else model.key for model in trained)
    stepped: dict[str, float] = {}  # samples by model, each for as much of the model as a step passed forward
    trained_on: dict[str, float] = {}  # and forward and backward
    passed: dict[str, float] = {}  # and as only passed forward
    for update in updates:
        item = update.item
        fraction = item.compute_fraction if item.training_fraction is None else item.training_fraction
        stepped[item.model] = stepped.get(item.model, 0.0) + update.trained * item.compute_fraction
        trained_on[item.model] = trained_on.get(item.model, 0.0) + update.trained * fraction
        passed[item.model] = passed.get(item.model, 0.0) + update.trained * item.forward_fraction
    duration_s = schedule.duration_s + other_work.seconds
    samples = sum(update.trained for update in updates)
    participants = sorted({update.client for update in updates})
    downloads = [(item.client, download_bytes(item)) for item in schedule.items]
    uploads = [(update.client, upload_bytes(update.item)) for update in updates]
    loss = math.fsum(update.loss * update.trained for update in updates) / samples if samples else math.nan
    passed_macs = float(sum(count * cost[key].forward_macs for key, count in passed.items()))
    forward_macs = float(sum(count * cost[key].forward_macs for key, count in stepped.items())) + passed_macs
    training_macs = float(sum(count * cost[key].training_macs for key, count in trained_on.items())) + passed_macs
    return RoundRecord(
        round=round,
        virtual_clock_s=clock_s + duration_s,
        round_duration_s=duration_s,
        client_durations_s=schedule.durations_s.tolist(),
        selected=selected,
        participants=participants,
        untrained=sorted(set(participants).difference(each.client for each in updates if each.item.trains)),
        assignments=dict(assignments),
        offline=schedule.offline + offline,
        stragglers=schedule.stragglers,
        failed=dict(failed),
        train_loss=loss,
        learning_rate=learning_rate,
        forward_macs=forward_macs + other_work.forward_macs,
        training_macs=training_macs + other_work.forward_macs,
        late_download_bytes=sum(map(download_bytes, schedule.late_items)),
        lost_download_bytes=sum(map(download_bytes, schedule.lost_items)),
        download_bytes=sum(count for _, count in downloads) + other_work.download_bytes,
        upload_bytes=sum(count for _, count in uploads) + other_work.upload_bytes,
        client_download_bytes=_by_participant(participants, downloads),
        client_upload_bytes=_by_participant(participants, uploads),
        client_computation_s=_seconds(participants, schedule.clients, schedule.computation_s),
        client_communication_s=_seconds(participants, schedule.clients, schedule.communication_s),
    )


def _by_participant(participants: Sequence[int], counts: Iterable[tuple[int, int]]) -> list[int]:
    """Sums of (client, count) over each participant's items; other clients failed."""
    sums: Counter[int] = Counter()
    for client, count in counts:
        sums[client] += count
    return [sums[client] for client in participants]


def _seconds(participants: Sequence[int], clients: Sequence[int], seconds: np.ndarray) -> list[float]:
    """Participants' entries of ``seconds`` [clients]."""
    of_client = dict(zip(clients, seconds.tolist(), strict=True))
    return [of_client[client] for client in participants]
