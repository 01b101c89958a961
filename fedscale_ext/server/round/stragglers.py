"""The virtual clock's view of a round: who finishes when, who is late, who has gone offline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.types import Task, WorkItem
from fedscale_ext.population.clock import TRAINING_FACTOR, completion_times
from fedscale_ext.population.population import Population
from fedscale_ext.submodels.model_pool import ModelPool


@dataclass(frozen=True)
class Schedule:
    """The work items that count, by client, and how long these clients compute and communicate.

    ``computation_s`` and ``communication_s`` are virtual seconds, float64 [clients], of all items of a client.
    ``duration_s``: the round lasts until its last counted client is done; where all went offline,
    until the last of them would have been. ``late``: ids of the clients that were too slow to count, how long they
    would have taken (``late_s``), and their work (``late_items``), which costs them a download and computation.
    ``lost_items``: the work of clients that went offline before they were done, which costs them a download, too.
    """

    items: list[WorkItem]
    computation_s: np.ndarray
    communication_s: np.ndarray
    duration_s: float
    late: np.ndarray
    late_s: np.ndarray
    offline: int
    late_items: Sequence[WorkItem] = ()
    lost_items: Sequence[WorkItem] = ()

    @property
    def clients(self) -> list[int]:
        """Ids of the clients that count, ascending."""
        return sorted({item.client for item in self.items})

    @property
    def durations_s(self) -> np.ndarray:
        """Virtual seconds that each of them takes, float64 [clients]."""
        return self.computation_s + self.communication_s

    @property
    def stragglers(self) -> int:
        """How many clients were too slow to count."""
        return len(self.late)


def schedule_round(
    items: Sequence[WorkItem],
    pool: ModelPool,
    population: Population,
    task: Task,
    *,
    clock_s: float,
    collect: int,
    reference_macs: float,
    download_bytes: Callable[[WorkItem], int] | None = None,
    upload_bytes: Callable[[WorkItem], int] | None = None,
) -> Schedule:
    """Keep the ``collect`` fastest clients that are still online when they finish (FedScale's rule).

    Each client's time follows from the MACs and bytes of the models that it trains and from the samples that
    its steps see: a client with less than a batch trains smaller steps. By default
    ``download_bytes`` of an item are the model's, and ``upload_bytes`` are those of its download.
    """
    items = sorted(items, key=lambda item: item.client)
    clients, computation, communication = client_times(
        items,
        pool,
        population,
        task,
        reference_macs=reference_macs,
        download_bytes=download_bytes,
        upload_bytes=upload_bytes,
    )
    durations = computation + communication
    there = np.ones(len(clients), dtype=bool)
    if population.availability is not None:
        there = population.availability.online_at(clients, clock_s + durations)
    order = np.argsort(durations, kind="stable")
    order = order[there[order]]
    counted = np.sort(order[:collect])
    chosen, late, lost = (set((clients[part] + 1).tolist()) for part in (counted, order[collect:], ~there))
    return Schedule(
        items=[item for item in items if item.client in chosen],
        computation_s=computation[counted],
        communication_s=communication[counted],
        duration_s=float((durations[counted] if len(counted) else durations).max(initial=0.0)),
        late=clients[np.sort(order[collect:])] + 1,
        late_s=durations[np.sort(order[collect:])],
        offline=int((~there).sum()),
        late_items=[item for item in items if item.client in late],
        lost_items=[item for item in items if item.client in lost],
    )


def client_times(
    items: Sequence[WorkItem],
    pool: ModelPool,
    population: Population,
    task: Task,
    *,
    reference_macs: float,
    download_bytes: Callable[[WorkItem], int] | None = None,
    upload_bytes: Callable[[WorkItem], int] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of ``items`` in the order of clients: the clients (numbers - 1, ascending), and the seconds that each computes
    and communicates for all of its items; float64 [clients]."""
    if not items:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    index = np.array([item.client - 1 for item in items], dtype=np.int64)
    clients, first = np.unique(index, return_index=True)
    known = {key: pool[key].cost for key in {item.model for item in items}}
    down = [known[item.model].bytes if download_bytes is None else download_bytes(item) for item in items]
    up = down if upload_bytes is None else [upload_bytes(item) for item in items]
    computation, communication = completion_times(
        population.computation_ms[index],
        population.communication_kbps[index],
        macs=np.array([known[item.model].forward_macs * _passes(item) for item in items], dtype=np.float64),
        down_bytes=np.array(down, dtype=np.float64),
        up_bytes=np.array(up, dtype=np.float64),
        samples=task.samples_of(items),
        reference_macs=reference_macs,
    )
    return clients, np.add.reduceat(computation, first), np.add.reduceat(communication, first)


def _passes(item: WorkItem) -> float:
    """Return how many times an item trains its model, per sample of its steps."""
    return item.compute_fraction + item.forward_fraction / TRAINING_FACTOR


def dropped_bytes(item: WorkItem, pool: ModelPool) -> int:
    """Bytes of the tensors that a client does not hand in."""
    return sum(pool[item.model].state[name].nbytes for name in item.dropped)
