"""Groups work items into units. The result does not depend on the number of executors."""

import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from fedscale_ext.core.types import Models, Task, WorkItem

T = TypeVar("T")

SPREAD = {"cpu": 4, "cuda": 1}  # one, two or four executors on a CPU; on a GPU, the whole round at once
_SIZE = 16  # clients of a unit, where neither the configuration nor the round asks for another number
_MOST = 64  # units of a round, about: each costs the aggregator a message and a sum


def plan_units(
    items: Sequence[WorkItem],
    pool: Models,
    task: Task,
    cohort: Callable[[str], int],
    unit_size: int | None,
    spread: int = SPREAD["cpu"],
) -> list[Sequence[WorkItem]]:
    """Plan units of clients of one model, objective and overrides, the costliest first.

    A unit holds about ``unit_size`` clients, a whole cohort at least, and more in a large round, so that the
    number of units stays bounded. None: about 16, and at most as many that each of ``spread`` executors has work
    and all end together. ``cohort``: clients that train side by side on the model of a key. Clients with fewer steps,
    or less than a batch, come last among their likes, so that few cohorts are ragged.
    """
    groups: dict[tuple[str, str], list[WorkItem]] = {}
    for item in items:
        # clients of a cohort may differ only in their number of steps
        overrides = {name: value for name, value in item.overrides.items() if name != "local_steps"}
        alike = json.dumps([dict(item.objective), overrides], sort_keys=True)
        groups.setdefault((item.model, alike), []).append(item)
    units: list[Sequence[WorkItem]] = []
    for (model, _), group in groups.items():
        group.sort(key=lambda item: _cohort_order(item, task))
        size = cohort(model)
        most = max(size, unit_size or _SIZE)
        if unit_size is None:
            most = min(most, math.ceil(len(items) / spread))
        parts = math.ceil(len(group) / (most * math.ceil(len(items) / (most * _MOST))))
        if unit_size is None and parts > spread // 2:
            parts = min(len(group), spread * math.ceil(parts / spread))
        units += in_parts(group, parts)
    units.sort(key=lambda unit: -pool[unit[0].model].cost.forward_macs * len(unit))
    return units


def _cohort_order(item: WorkItem, task: Task) -> tuple[int, int, int]:
    """By falling steps, as a cohort needs it, then by the samples that they see."""
    sizes = task.step_sizes(item.client, item.overrides)
    return -len(sizes), -int(sizes.sum()), item.client


def in_parts(group: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Cut a group into ``parts`` that differ in length by one at most."""
    bounds = [len(group) * part // parts for part in range(parts + 1)]
    return [group[begin:end] for begin, end in pairwise(bounds)]
