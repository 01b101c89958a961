"""Jobs that differ only in their seed, as one arm of a comparison: its figures over the seeds, and its state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedscale_ext.report.compare.columns import FIGURES, Column
from fedscale_ext.report.compare.disqualified import disqualified
from fedscale_ext.report.job.loading import LoadedJob, fine_tuned

_FEW = 0.05  # a share too small to mention: of clients beyond capacity, of updates that failed


@dataclass(frozen=True)
class Arm:
    """Jobs that differ only in their seed; ``label`` tells them from the other arms.

    ``data`` is the name of their data, with a number where other data have it too. Figures are of ``jobs``, one a seed:
    where some have ended, those that have not are ``unfinished``. ``repeats`` are jobs with a seed that another has.
    Arms of one number ``afford`` have devices that afford the same.
    """

    label: str
    jobs: Sequence[LoadedJob]
    data: str
    unfinished: Sequence[LoadedJob] = ()
    repeats: Sequence[LoadedJob] = ()
    afford: int = 0

    @property
    def every_job(self) -> list[LoadedJob]:
        """Its jobs with those that its figures leave out."""
        return [*self.jobs, *self.unfinished, *self.repeats]

    @property
    def count(self) -> str:
        """The number of its jobs, and of how many where some are unfinished."""
        known = len(self.jobs)
        return f"{known} of {known + len(self.unfinished)}" if self.unfinished else str(known)

    @property
    def digest(self) -> str:
        """Digest of the data."""
        return self.jobs[0].digest

    @property
    def personal(self) -> bool:
        """True if clients are tested on personal models."""
        return any(job.personal for job in self.jobs)

    @property
    def beyond_capacity(self) -> int:
        """Clients that train what their devices do not afford, if they are more than a twentieth of all, else 0."""
        most = max(job.header.get("beyond_capacity", 0) for job in self.jobs)
        return most if most > _FEW * self.jobs[0].header["num_clients"] else 0

    @property
    def generated(self) -> bool:
        """True if the data are generated."""
        return self.jobs[0].header["data"]["generated"]

    @property
    def uncounted(self) -> int:
        """Updates that failed or were refused, if they are more than a twentieth of all, else 0.

        What their clients trained and sent is not in the costs.
        """
        clients = [job.summary["clients"] for job in self.jobs]
        failed = sum(int(each["failed_total"]) for each in clients)
        asked = failed + sum(int(each["participations"]) for each in clients)
        return failed if failed > _FEW * asked else 0

    @property
    def masked(self) -> bool:
        """True if tests mask the logits of classes that a client lacks."""
        return any(job.masked for job in self.jobs)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the jobs, in their order."""
        return [job.seed for job in self.jobs]

    @cached_property
    def disqualified(self) -> str | None:
        """Why it may not be the best of a column, in a clause; None where it may."""
        return disqualified(self.jobs, self.unfinished)

    @cached_property
    def figures(self) -> dict[str, list[float]]:
        """Key of a figure -> its values, one a job; without figures that a job does not have."""
        values = {figure.key: [figure.get(job) for job in self.jobs] for figure in FIGURES}
        return {
            key: [float(one) for one in each if one is not None] for key, each in values.items() if None not in each
        }

    def mean(self, key: str) -> float | None:
        """Mean of a figure over the seeds."""
        values = self.figures.get(key)
        return float(np.mean(values)) if values else None

    def std(self, key: str) -> float | None:
        """Standard deviation of a figure over the seeds (unbiased); None for one seed."""
        values = self.figures.get(key, ())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    @property
    def state(self) -> str:
        """Progress of the unfinished jobs with the round of their last test; empty where all have ended."""
        return ", ".join(job.state for job in self.jobs if not job.finished)

    @property
    def progress(self) -> str:
        """Progress of the unfinished jobs; empty where all have ended."""
        return ", ".join(job.progress for job in self.jobs if not job.finished)


def with_fine_tuned(arms: Sequence[Arm]) -> list[tuple[int, Arm]]:
    """The rows of a table: each arm with its index among ``arms``, and after it the same arm fine-tuned, if it was."""
    rows = []
    for index, arm in enumerate(arms):
        rows.append((index, arm))
        tuned = [one for one in map(fine_tuned, arm.jobs) if one is not None]
        if len(tuned) == len(arm.jobs):
            rows.append((index, replace(arm, label=f"{arm.label}, fine-tuned", jobs=tuned)))
    return rows


def shown(arms: Sequence[Arm], by_class: bool = False) -> list[Column]:
    """The columns of a comparison of these arms; ``by_class``: those of classes, too."""
    jobs = [job for arm in arms for job in arm.jobs]
    return [figure for figure in FIGURES
            if (by_class or not figure.of_classes)
            and (not figure.rare or any(figure.get(job) is not None for job in jobs))]  # fmt: skip


def pooled(arm: Arm) -> np.ndarray:
    """Accuracies of all tested clients, all seeds' together."""
    values = np.concatenate([job.client_accuracy for job in arm.jobs])
    return values[~np.isnan(values)]
