"""Which jobs' devices afford the same: the MACs per sample of the largest model that each client can train."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.report.job.loading import DEVICE_FILES, LoadedJob

_SAME = 0.01  # relative difference of two capacities that does not count
SETTINGS = ("capacity_rule", "deadline_s", "capacity_spread", "capacity_model", "local_steps", "batch_size",
            "local_epochs", "reference_macs")  # fmt: skip
"""Settings that decide what a device affords (``population/capacity.py``)."""


def weakest(jobs: Sequence[LoadedJob]) -> frozenset[str]:
    """Return the MACs per sample that the weakest client affords, to two digits; of each seed, where seeds differ.

    It is the base model's by default, which a method may choose (``capacity_model``). Jobs of earlier versions that
    did not record it are left out.
    """
    return frozenset(f"{job.affords[0]:.2g}" for job in jobs if job.affords is not None)


def groups(rows: Sequence[Sequence[LoadedJob]]) -> list[int]:
    """Return the number of each row's group; in a group, devices afford the same.

    Args:
        rows: The jobs of each row, one a seed.

    """
    members: list[list[Sequence[LoadedJob]]] = []
    result = []
    for row in rows:
        for number, group in enumerate(members):
            if all(_afford_the_same(row, other) for other in group):
                group.append(row)
                result.append(number)
                break
        else:
            result.append(len(members))
            members.append([row])
    return result


def _afford_the_same(jobs: Sequence[LoadedJob], others: Sequence[LoadedJob]) -> bool:
    """Whether the weakest clients of two rows afford the same, and so does each client in jobs of equal seeds.

    Devices that are drawn depend on the seed, so that clients of other seeds are not compared. Those on other data or
    devices are not either.
    """
    if weakest(jobs) != weakest(others):
        return False
    return all(_equal(job, other) for job in jobs for other in others if job.seed == other.seed)


def _equal(job: LoadedJob, other: LoadedJob) -> bool:
    elsewhere = job.digest != other.digest or any(not job.same_setting(other, key) for key in DEVICE_FILES)
    if elsewhere or job.clients is None or other.clients is None:
        return True
    one, two = job.clients.capacity, other.clients.capacity
    return len(one) != len(two) or bool(np.allclose(one, two, rtol=_SAME, atol=0.0))


def strongest_ratio(jobs: Sequence[LoadedJob]) -> float:
    """Return how many times as many MACs the strongest client affords in one of these jobs as in another one."""
    most = [job.affords[1] for job in jobs if job.affords is not None]
    return max(most) / min(most) if most else 1.0
