"""Notices of clients that take longer than ``deadline_s``, which bounds the MACs of models and not their bytes."""

from collections.abc import Callable, Sequence

import numpy as np

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.core.types import Task
from fedscale_ext.population.clock import whole_model_seconds
from fedscale_ext.population.population import Population
from fedscale_ext.server.round.stragglers import Schedule


class DeadlineNotices:
    """Tells once per start of a job that clients take longer than an explicit ``deadline_s``."""

    def __init__(self, config: JobConfig, notice: Callable[[str], None]) -> None:
        self._deadline_s = config.job.deadline_s  # only of rule deadline: other rules refuse it
        self._reference_macs = config.job.reference_macs
        self._notice, self._reported = notice, False

    def assigned(self, costs: Sequence[Cost], indices: np.ndarray, population: Population, task: Task) -> None:
        """Report clients whose model takes them longer; ``indices`` int64 [clients] into ``costs``."""
        if self._deadline_s is None:
            return
        seconds = whole_model_seconds(
            population.computation_ms,
            population.communication_kbps,
            [costs[index] for index in indices],
            task.samples_seen(np.arange(task.num_clients)),
            self._reference_macs,
        )
        self._report(seconds, f"of {task.num_clients} clients")

    def scheduled(self, round: int, schedule: Schedule) -> None:
        """Report clients of a round that take longer, which a method may have given other models or more work."""
        seconds = np.concatenate([schedule.durations_s, schedule.late_s])
        self._report(seconds, f"of the {len(seconds)} clients of round {round}")

    def _report(self, seconds: np.ndarray, whom: str) -> None:
        late = 0 if self._deadline_s is None else int((seconds > self._deadline_s * (1 + 1e-9)).sum())
        if late and not self._reported:
            self._reported = True
            self._notice(
                f"{late} {whom} take longer than deadline_s, {self._deadline_s:g} s: the slowest takes "
                f"{seconds.max():.3g} s; deadline_s only bounds the MACs of clients' models, reckoned with the bytes "
                "per MAC of the smallest; lower it if no client may take longer"
            )
