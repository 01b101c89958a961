"""Which clients an executor is handed at once; the number of executors plays no part."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from fedscale_ext.runtime.pool import ModelPool
from fedscale_ext.runtime.work import Task, WorkItem

_EVEN = 4  # units come in multiples of it, so that one, two or four executors end together
OWN_STEPS = "local_steps"  # the one part of an objective in which clients of a cohort may differ


def plan_units(
    items: Sequence[WorkItem], pool: ModelPool, task: Task, cohort: Callable[[str], int], unit_size: int
) -> list[list[WorkItem]]:
    """Units of clients of one model and objective, the costliest first.

    ``cohort``: clients that train side by side on the model of a key; 1 makes units of ``unit_size``
    clients who train one after another. Clients with fewer steps, or less than a batch, come last
    among their likes, so that few cohorts are ragged.
    """
    groups: dict[tuple[str, str], list[WorkItem]] = {}
    for item in items:
        shared = {name: value for name, value in item.objective.items() if name != OWN_STEPS}
        groups.setdefault((item.model, json.dumps(shared, sort_keys=True)), []).append(item)
    units = []
    for (model, _), group in groups.items():
        group.sort(key=lambda item: _place(item, task))
        size = cohort(model)
        units += _even_parts(group, size if size > 1 else unit_size)
    units.sort(key=lambda unit: -pool[unit[0].model].cost.forward_macs * len(unit))
    return units


def _place(item: WorkItem, task: Task) -> tuple[int, int, int]:
    """By falling steps, as a cohort needs it, then by falling batch."""
    steps = int(item.objective.get(OWN_STEPS, task.local_steps))
    return -steps, -min(task.batch_size, int(task.train_sizes[item.client - 1])), item.client


def _even_parts(group: list[WorkItem], most: int) -> list[list[WorkItem]]:
    parts = math.ceil(len(group) / most)
    if parts > _EVEN // 2:
        parts = min(len(group), _EVEN * math.ceil(parts / _EVEN))
    bounds = [len(group) * part // parts for part in range(parts + 1)]
    return [group[begin:end] for begin, end in pairwise(bounds)]
