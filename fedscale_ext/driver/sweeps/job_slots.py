"""How many jobs of a sweep run side by side on this machine, and which of its GPUs each job gets."""

import os
import time
from collections.abc import Callable, Mapping, Sequence

import psutil

from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.driver.sweeps.gpus import VISIBLE, Gpu, read_gpus

_PROCESS_BYTES = 600e6  # evals/speed/results.md: executors 395 to 593 MB; --at-once for larger models
_CUDA_PROCESS_BYTES = 1.8e9  # a job's aggregator and executor were measured with 3,420 MB
_SHARE = 0.8  # of a GPU's memory that jobs may take: models grow, and a test may need more than a step
_LOOK_S = 5.0  # between two readings of the GPUs' memory


class JobSlots:
    """Decides whether another job of a sweep may start.

    Jobs on GPUs are spread over all of them. A further job joins those of a GPU once each of these has trained a
    round, so that its memory is known, and if as much again as the mean of them fits.

    Args:
        most: Jobs at once.
        gpus: GPUs that the jobs may use; none for jobs on the CPU, or where nothing is known of GPUs.
        gpus_of_job: GPUs that each job uses.
        by_memory: Whether jobs share a GPU as far as its memory allows; else as ``most`` asks.
        read: Reads the present state of the GPUs.
        clock: Seconds.

    """

    def __init__(
        self, most: int, gpus: Sequence[Gpu] = (), gpus_of_job: int = 1, by_memory: bool = True,
        read: Callable[[], list[Gpu]] = read_gpus, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        uuids = [gpu.uuid for gpu in gpus]
        starts = range(0, len(uuids) - gpus_of_job + 1, gpus_of_job)
        self.groups = [uuids[start : start + gpus_of_job] for start in starts]
        self.most = most
        self._by_memory, self._read, self._clock = by_memory, read, clock
        self._group_of: dict[str, int] = {}
        self._next_look = 0.0

    def admit(self, job: str, trained: Mapping[str, bool]) -> bool:
        """Take a job in if there is room for it.

        Args:
            job: Name of the job.
            trained: The jobs under way, and whether each has trained a round since it started.

        """
        if len(trained) >= self.most:
            return False
        if not self.groups:
            return True
        self._group_of = {name: group for name, group in self._group_of.items() if name in trained}
        neighbours: list[list[str]] = [[] for _ in self.groups]
        for name, group in self._group_of.items():
            neighbours[group].append(name)
        group = min(range(len(self.groups)), key=lambda index: len(neighbours[index]))
        shared = neighbours[group]
        if shared and self._by_memory and not (all(map(trained.get, shared)) and self._fits(group, len(shared))):
            return False
        self._group_of[job] = group
        self._next_look = 0.0
        return True

    def environment(self, job: str) -> dict[str, str]:
        """Return the variable that shows a job its GPUs alone; empty where none are known."""
        return {VISIBLE: ",".join(self.groups[self._group_of[job]])} if job in self._group_of else {}

    def sentence(self) -> str:
        """Return how many jobs run at once, in words."""
        if not self.groups:
            return f"{self.most} at once"
        gpus = sum(map(len, self.groups))
        if not self._by_memory or self.most <= len(self.groups):
            return f"{self.most} at once on {gpus} GPU{'s' * (gpus > 1)}"
        return f"{len(self.groups)} at once on {gpus} GPU{'s' * (gpus > 1)}, up to {self.most} if their memory suffices"

    def _fits(self, group: int, jobs: int) -> bool:
        """Whether another job, as large as the mean of ``jobs`` jobs, fits on each GPU of a group."""
        now = self._clock()
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_S
        state = {gpu.uuid: gpu for gpu in self._read()}
        gpus = [state.get(uuid) for uuid in self.groups[group]]
        return all(gpu is not None and gpu.used_mib * (jobs + 1) <= _SHARE * gpu.total_mib * jobs for gpu in gpus)


def job_slots(config: JobConfig, at_once: int | None) -> JobSlots:
    """Return the slots for jobs such as ``config``: as many as fit the machine, or ``at_once``.

    Without nvidia-smi, jobs on a GPU run one after another unless ``at_once`` says otherwise.
    """
    slots = executor_slots(config)
    executors = max(1, len(slots))  # a job without any waits for those that join
    on_gpu = config.fedscale.use_cuda
    gpus = read_gpus() if on_gpu else []
    gpus_of_job = 1 + max((gpu for _, gpu in slots), default=0)
    if at_once is not None or (on_gpu and len(gpus) < gpus_of_job):
        return JobSlots(at_once or 1, gpus, gpus_of_job, by_memory=False)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    bytes_of_process = _CUDA_PROCESS_BYTES if on_gpu else _PROCESS_BYTES
    by_memory = int(psutil.virtual_memory().available // (bytes_of_process * (executors + 1)))
    return JobSlots(max(1, min(cores // executors, by_memory)), gpus, gpus_of_job)
