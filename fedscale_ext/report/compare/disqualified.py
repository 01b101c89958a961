"""Rows of a comparison whose figures mean nothing: their training diverged, or they do no better than guessing."""

from collections.abc import Sequence

from fedscale_ext.core.failures import tells_divergence
from fedscale_ext.metrics.divergence import has_diverged
from fedscale_ext.metrics.job_folder.header import floor_figures
from fedscale_ext.report.job.loading import LoadedJob

_ROUNDING = 1e-9  # accuracies that differ by less are equal


def disqualified(jobs: Sequence[LoadedJob], unfinished: Sequence[LoadedJob] = ()) -> str | None:
    """Say in a clause why jobs of several seeds may not be the best of a comparison; None where they may.

    The training of a seed, also of an ``unfinished`` one, diverged, or the accuracy of a seed is at or below that of
    guessing (:func:`guessing`): its other figures, such as the spread over clients, mean nothing.
    """
    if any(has_diverged(job.records) or tells_divergence(job.failure) for job in (*jobs, *unfinished)):
        return "its training diverged"
    accuracies = [(job.summary["accuracy"] or {}).get("mean") for job in jobs]
    guesses = [guessing(job) for job in jobs]
    for job, reached, floor in zip(jobs, accuracies, guesses, strict=True):
        if reached is not None and floor is not None and reached <= floor + _ROUNDING:
            seed = f" with seed {job.seed}" if len(jobs) > 1 else ""
            return f"its accuracy of {reached:.2%}{seed} is not above the {floor:.2%} of guessing"
    return None


def guessing(job: LoadedJob) -> float | None:
    """Accuracy of the clients of a job by the best guess that is as its models are; None where it is not recorded.

    A shared model competes with one label for all clients. A personal model, and one whose test knows the client's
    labels, competes with a label for each client too. Jobs of earlier versions recorded only the latter.
    """
    floors = floor_figures(job.header)
    means = {kind: each["mean"] for kind, each in floors.items() if each["mean"] is not None}
    knows_client = job.personal or job.masked
    shared = means.get("most_frequent")
    return shared if shared is not None and not knows_client else max(means.values(), default=None)
