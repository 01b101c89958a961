"""Where a job's executors run: hosts and GPUs, from the key ``worker_ips``."""

import os
import re
from typing import TYPE_CHECKING

from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    from fedscale_ext.config.job_config import JobConfig  # it checks a configuration by these functions

_MAX_EXECUTORS = 1024


def executor_slots(config: "JobConfig") -> list[tuple[str, int]]:
    """Return one (host, index of its GPU) per executor, from worker_ips such as ``localhost:[2,1]``.

    A host without slots runs one executor per core that this process may use, or one on its first GPU. Without any
    executor, the job waits for others to join.
    """
    if sum(sum(counts) for _, counts in slots_by_worker(config)) > _MAX_EXECUTORS:
        raise UserError(f"worker_ips asks for more than {_MAX_EXECUTORS:,} executors; give fewer slots")
    return [
        (host, gpu)
        for host, counts in slots_by_worker(config)
        for gpu, count in enumerate(counts)
        for _ in range(count)
    ]


def executor_configs(config: "JobConfig") -> str:
    """Return FedScale's ``--executor_configs`` argument."""
    return "=".join(f"{host}:[{','.join(map(str, counts))}]" for host, counts in slots_by_worker(config))


def slots_by_worker(config: "JobConfig") -> list[tuple[str, list[int]]]:
    """Split each entry of worker_ips into its host and the number of executors on each GPU."""
    workers = []
    for worker in config.cluster.worker_ips:
        match = re.fullmatch(r"\s*([^\s:\[\]]+)\s*(?::\s*\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]\s*)?", worker)
        if not match:
            raise UserError(
                f"worker_ips entry {worker!r}: write it as host:[n] or host:[n,m], n executors per GPU, "
                "or as host for one executor per core"
            )
        counts = [int(count[:9]) for count in match[2].split(",")] if match[2] else [_default_executors(config)]
        workers.append((match[1], counts))
    return workers


def _default_executors(config: "JobConfig") -> int:
    if config.fedscale.use_cuda:
        return 1
    # fewer than os.cpu_count() in a container or under taskset; macOS cannot say
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
