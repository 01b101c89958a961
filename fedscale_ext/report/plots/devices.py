"""Clients by what their devices can compute: how they fare, and what they are served."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.metrics.capacity_groups import group_means, kind_names, kinds_of, tier_of
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.model_order import model_order
from fedscale_ext.util.quantities import quantity

_QUARTERS = ("weakest\nquarter", "second", "third", "strongest\nquarter")
_BINS = 10


@dataclass(frozen=True)
class DeviceClasses:
    """Classes of devices by which arms are compared.

    ``names`` has the weakest class first. ``means`` holds each arm's mean accuracy over its seeds, float64 [classes].
    It is None for an arm with a job whose capacities are not known.
    """

    names: Sequence[str]
    means: Sequence[np.ndarray | None]


def device_classes(arms: Sequence[Arm]) -> DeviceClasses:
    """A class for each capacity where all jobs have equally few, else quarters of the clients by capacity."""
    capacities = {
        id(job): job.clients.capacity
        for arm in arms
        for job in arm.jobs
        if job.clients is not None and len(job.client_accuracy)
    }
    kinds = [kinds_of(capacity) for capacity in capacities.values()]
    few = [kind_values for kind_values in kinds if kind_values is not None]
    if few and len(few) == len(kinds) and len({len(kind_values) for kind_values in few}) == 1:
        groups = {job: np.unique(capacity, return_inverse=True)[1] for job, capacity in capacities.items()}
        names: Sequence[str] = _kinds(few)
    else:
        groups = {job: tier_of(capacity) for job, capacity in capacities.items()}
        names = _QUARTERS
    return DeviceClasses(names, [_means(arm, groups, len(names)) for arm in arms])


def _means(arm: Arm, groups: dict[int, np.ndarray], classes: int) -> np.ndarray | None:
    if not all(id(job) in groups for job in arm.jobs):
        return None
    return np.mean([group_means(job.client_accuracy, groups[id(job)], classes) for job in arm.jobs], axis=0)


def _kinds(kinds: Sequence[np.ndarray]) -> list[str]:
    """Names of as many kinds in each job: what they afford, or their order where that differs between the jobs."""
    if all(np.array_equal(kind_values, kinds[0]) for kind_values in kinds):
        return kind_names(kinds[0])
    return [f"kind {number}" for number in range(1, len(kinds[0]) + 1)]


@dataclass(frozen=True)
class Assignment:
    """Share of clients that each model is served to, by capacity of the device.

    ``share[k, b]`` is the share of the clients in capacity bin b that are served model ``models[k]``. ``edges`` [bins +
    1] are capacities in MACs per sample. ``kinds`` names the bins where each is one capacity.
    """

    models: Sequence[str]
    edges: np.ndarray
    share: np.ndarray
    kinds: Sequence[str] | None = None


def assignment(job: LoadedJob) -> Assignment | None:
    """Assignment of models to clients by capacity, from the last test.

    Each capacity is a bin where these are few; otherwise at most ten bins hold about as many clients each. None where
    capacities were not recorded, or no client was tested.
    """
    if job.clients is None or job.evaluation is None:
        return None
    capacity, serve = job.clients.capacity, job.evaluation.serve
    held = set(serve)
    keys = [key for key in model_order(job.records) if key in held]
    kinds = kinds_of(capacity)
    tiers = capacity if kinds is not None else tier_of(capacity, max(1, min(_BINS, len(capacity) // 3)))
    filled, bin_of_client = np.unique(tiers, return_inverse=True)
    bins = len(filled)
    at = {key: index for index, key in enumerate(keys)}
    served = np.fromiter((at[key] for key in serve), np.int64, len(serve))
    counts = np.bincount(served * bins + bin_of_client, minlength=len(keys) * bins).reshape(len(keys), bins)
    edges = np.append([capacity[bin_of_client == index].min() for index in range(bins)], capacity.max())
    names = None if kinds is None else [quantity(kind) for kind in kinds.tolist()]
    return Assignment(keys, edges, counts / counts.sum(axis=0), names)
