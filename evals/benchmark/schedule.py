"""Which job comes next: each row tries its learning rates, then trains its seeds with the one that was best."""

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field

from evals.benchmark.methods import ROWS, Row
from evals.benchmark.row import NoResult, Outcome
from evals.benchmark.standing import OWN
from evals.benchmark.tasks import TASKS, Task

TrainJob = Callable[[str, str, Row, int, float], Outcome]
"""Trains a job of (task, label, row, seed, learning rate) and returns its outcome; NoResult if it cannot."""
Tell = Callable[[str], None]


@dataclass
class _Plan:
    """The jobs of a row on a task that have not begun, and what its learning rates gave.

    ``tries`` is the number of learning rates whose jobs have begun and not ended.
    """

    task: str
    label: str
    row: Row
    rates: list[float]
    seeds: list[int]
    accuracies: dict[float, float] = field(default_factory=dict)
    tries: int = 0

    @property
    def trial_seed(self) -> int:
        """Return the seed on which learning rates are tried: none of the table's."""
        return max(TASKS[self.task].seeds) + 1

    def take(self) -> tuple[int, float] | None:
        """Take the next job, as (seed, learning rate); None if there is none now."""
        if self.rates:
            self.tries += 1
            return self.trial_seed, self.rates.pop(0)
        if self.seeds and not self.tries:
            return self.seeds.pop(0), max(self.accuracies, key=lambda rate: self.accuracies[rate])
        return None

    def ended(self, seed: int, rate: float, figures: Mapping[str, float]) -> None:
        """Count a job that has ended."""
        if seed == self.trial_seed:
            self.tries -= 1
            self.accuracies[rate] = figures[OWN]

    def failed(self, seed: int) -> bool:
        """Count a job without a result; True if the row ends with it, whose other jobs are left out then.

        A learning rate at which training diverges is one that is not chosen.
        """
        if seed == self.trial_seed:
            self.tries -= 1
            if self.rates or self.tries or self.accuracies:
                return False
        self.rates, self.seeds = [], []
        return True


def has_row(task: Task, label: str) -> bool:
    """Return whether a task has the row of a label; it has every row of a user's."""
    return label not in ROWS or not task.rows or label in task.rows


def train_rows(
    rows: Mapping[str, Row],
    seeds: Mapping[str, Sequence[int]],
    rates: Mapping[str, Sequence[float]],
    train: TrainJob,
    pool: Executor,
    workers: int,
    tell: Tell = print,
) -> list[str]:
    """Train all jobs of rows, ``workers`` at a time, earlier rows first; return why some have no result.

    Args:
        rows: Rows by label; a task leaves out those that it does not have.
        seeds: The seeds of each task.
        rates: The learning rates of each task, from which each row chooses. A single one is taken as it is.
        train: What trains a job.
        pool: What runs it.
        workers: Jobs at a time.
        tell: Gets a line when a job has begun or ended.

    """
    plans = [
        _plan(task, label, row, rates[task], seeds[task])
        for task in seeds
        for label, row in rows.items()
        if has_row(TASKS[task], label)
    ]
    jobs = sum(len(plan.rates) + len(plan.seeds) for plan in plans)
    begun, failures = 0, []
    running: dict[Future[Outcome], tuple[_Plan, int, float]] = {}
    while True:
        for plan in plans:
            while len(running) < workers and (job := plan.take()) is not None:
                begun += 1
                seed, rate = job
                tell(f"{plan.task}: {plan.label}, seed {seed}, learning rate {rate:g} begins: job {begun} of {jobs}")
                running[pool.submit(train, plan.task, plan.label, plan.row, seed, rate)] = plan, seed, rate
        if not running:
            return failures
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            plan, seed, rate = running.pop(future)
            try:
                figures, was_recorded = future.result()
            except NoResult as reason:
                if plan.failed(seed):
                    failures.append(str(reason))
                else:
                    tell(f"{plan.task}: {plan.label}, learning rate {rate:g} is not chosen: {reason}")
                continue
            plan.ended(seed, rate, figures)
            aside = " (recorded before, so not trained now)" if was_recorded else ""
            tell(f"{plan.task}: {plan.label}, seed {seed}, learning rate {rate:g}: {figures[OWN]:.2f} %{aside}")


def _plan(task: str, label: str, row: Row, rates: Sequence[float], seeds: Sequence[int]) -> _Plan:
    """All jobs of a row on a task; of a single rate, there is nothing to choose."""
    if len(rates) > 1:
        return _Plan(task, label, row, list(rates), list(seeds))
    return _Plan(task, label, row, [], list(seeds), dict.fromkeys(rates, math.nan))
