"""The virtual clock's view of a round: who finishes when, who is late, who has gone offline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.population.clock import completion_times
from fedscale_ext.population.population import Population
from fedscale_ext.runtime.pool import ModelPool
from fedscale_ext.runtime.work import Task, WorkItem


@dataclass(frozen=True)
class Schedule:
    """The work items that count, by client, and the durations of these clients in virtual seconds [clients].

    ``duration_s``: the round lasts until its last counted client is done; where all went offline,
    until the last of them would have been.
    """

    items: list[WorkItem]
    durations_s: np.ndarray
    duration_s: float
    stragglers: int
    offline: int


def schedule_round(
    items: Sequence[WorkItem],
    pool: ModelPool,
    population: Population,
    task: Task,
    *,
    clock_s: float,
    collect: int,
    reference_macs: float,
    traffic: Callable[[WorkItem], int] | None = None,
    upload: Callable[[WorkItem], int] | None = None,
) -> Schedule:
    """Keep the ``collect`` fastest clients that are still online when they finish (FedScale's rule).

    Each client's time follows from the MACs and bytes of the models that it trains and from the samples that
    its steps see: a client with less than a batch trains smaller steps. ``traffic``: bytes in each direction,
    where they are not the model's; ``upload``: of what it hands in, where that differs.
    """
    items = sorted(items, key=lambda item: item.client)
    place = np.array([item.client - 1 for item in items], dtype=np.int64)
    clients, first = np.unique(place, return_index=True)
    known = {key: pool[key].cost for key in {item.model for item in items}}
    carried = [known[item.model].bytes if traffic is None else traffic(item) for item in items]
    returned = carried if upload is None else [upload(item) for item in items]
    computation, communication = completion_times(
        population.computation_ms[place],
        population.communication_kbps[place],
        macs=np.array([known[item.model].forward_macs * item.effort for item in items], dtype=np.float64),
        down_bytes=np.array(carried, dtype=np.float64),
        up_bytes=np.array(returned, dtype=np.float64),
        local_steps=1,
        batch_size=task.samples_seen(place),  # the samples of all steps
        reference_macs=reference_macs,
    )
    durations = np.add.reduceat(computation + communication, first) if items else np.zeros(0)
    there = np.ones(len(clients), dtype=bool)
    if population.availability is not None:
        there = population.availability.online_at(clients, clock_s + durations)
    order = np.argsort(durations, kind="stable")
    order = order[there[order]]
    kept = np.sort(order[:collect])
    chosen = set((clients[kept] + 1).tolist())
    return Schedule(
        items=[item for item in items if item.client in chosen],
        durations_s=durations[kept],
        duration_s=float((durations[kept] if len(kept) else durations).max(initial=0.0)),
        stragglers=len(order) - len(kept),
        offline=int((~there).sum()),
    )
