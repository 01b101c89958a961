"""How jobs fare with each class: a table with the arms side by side."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.errors import one_line
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.util.quantities import percent

NOTE = "Accuracy of each class over the test samples of all clients, each tested on its served model; mean over seeds."
NO_CLASSES = ("No job here has figures of classes. They are of a job's last test, so a job has them once it has ended. "
              "Jobs on text and jobs of earlier versions have none.")  # fmt: skip
_NAME = 40  # characters of a class's name


def class_tables(arms: Sequence[Arm]) -> list[tuple[str, list[str], list[list[str]]]]:
    """For each data set: its name, and titles and rows of a table with a row per class and a column per arm.

    Arms whose jobs have no figures of classes are left out.
    """
    by_data: dict[tuple[str, int], list[tuple[Arm, list[np.ndarray]]]] = {}
    for arm in arms:
        values = [_accuracies(job) for job in arm.jobs]
        known = [each for each in values if each is not None]
        if len(known) == len(values) and len({len(each) for each in known}) == 1:
            by_data.setdefault((arm.digest, len(known[0])), []).append((arm, known))
    tables = []
    for alike in by_data.values():
        first = alike[0][0]
        samples = first.jobs[0].summary["by_class"]["classes"]["samples"]
        names = [one_line(name, _NAME) for name in class_names(first.jobs[0].header["config"], len(samples))]
        rows = [
            [name, f"{count:,}", *(_mean([each[at] for each in values]) for _, values in alike)]
            for at, (name, count) in enumerate(zip(names, samples, strict=True))
            if count
        ]
        tables.append((first.data, ["class", "test samples", *(arm.label for arm, _ in alike)], rows))
    return tables


def _mean(values: Sequence[float]) -> str:
    """The mean over seeds in words; of those that tested the class, where clients of others could not be tested."""
    known = [value for value in values if not np.isnan(value)]
    return percent(sum(known) / len(known)) if known else "–"


def _accuracies(job: LoadedJob) -> np.ndarray | None:
    """float64 [classes]: accuracy of each class, NaN for one without test samples; None where the job has none."""
    figures = job.summary.get("by_class") or {}
    if "classes" not in figures:
        return None
    values = figures["classes"]["accuracy"]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
