"""Clients by what their devices can compute: how they fare, and what they are served."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.metrics.tiers import group_means, tier_of
from fedscale_ext.report.arms import Arm
from fedscale_ext.report.loading import LoadedJob
from fedscale_ext.report.panels import model_order

_CLASSES = ("weakest\nquarter", "second", "third", "strongest\nquarter")
_BINS = 10


def class_names() -> Sequence[str]:
    """The classes of devices, weakest first: quarters of the clients by capacity."""
    return _CLASSES


def class_means(arm: Arm) -> np.ndarray | None:
    """float64[classes]: mean accuracy of each class's tested clients, over all seeds; None where a job of the arm
    has no capacities."""
    means = []
    for job in arm.jobs:
        if job.clients is None or not len(job.client_accuracy):
            return None
        place = tier_of(job.clients.capacity, len(_CLASSES))
        means.append(group_means(job.client_accuracy, place, len(_CLASSES)))
    return np.mean(means, axis=0)


@dataclass(frozen=True)
class Assignment:
    """``share[k, b]``: share of the clients in bin b of capacities that model ``models[k]`` is served to;
    ``edges`` [bins + 1] are capacities in MACs per sample."""

    models: Sequence[str]
    edges: np.ndarray
    share: np.ndarray


def assignment(job: LoadedJob) -> Assignment | None:
    """Which model clients are served, against what they afford, in at most ten bins of as many clients each;
    None where capacities were not recorded, or nobody was tested."""
    if job.clients is None or job.evaluation is None:
        return None
    capacity, serve = job.clients.capacity, job.evaluation.serve
    held = set(serve)
    keys = [key for key in model_order(job.records) if key in held]
    bins = max(1, min(_BINS, len(capacity) // 3))
    place = tier_of(capacity, bins)
    at = {key: index for index, key in enumerate(keys)}
    served = np.fromiter((at[key] for key in serve), np.int64, len(serve))
    counts = np.bincount(served * bins + place, minlength=len(keys) * bins).reshape(len(keys), bins)
    edges = np.append([capacity[place == index].min() for index in range(bins)], capacity.max())
    return Assignment(keys, edges, counts / counts.sum(axis=0))
