"""The figures by which jobs are compared: each with its direction and its words."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.tables import megabytes, seconds
from fedscale_ext.util.quantities import percent, quantity


@dataclass(frozen=True)
class Column:
    """A column of comparisons.

    ``title`` names it and ``tell`` writes a value of it. ``more_is_better`` is None where neither direction is better.
    A ``rare`` figure is shown only where a job has it, one ``of_classes`` only where these were asked for, too.
    """

    key: str
    title: str
    more_is_better: bool | None
    get: Callable[[LoadedJob], float | None]
    tell: Callable[[float], str]
    note: str = ""
    rare: bool = False
    of_classes: bool = False


def _accuracy(name: str) -> Callable[[LoadedJob], float | None]:
    return lambda job: (job.summary["accuracy"] or {}).get(name)


def _global(job: LoadedJob) -> float | None:
    """Of the whole model, where the method tests one beside what clients are served."""
    named = (job.summary["accuracy"] or {}).get("named", {})
    return named["global"]["accuracy"] if "global" in named else None


def _of(part: str, name: str) -> Callable[[LoadedJob], float | None]:
    return lambda job: job.summary[part].get(name)


def _at_the_end(part: str) -> Callable[[LoadedJob], float | None]:
    return lambda job: (job.summary.get(part) or {}).get("mean")


def _worst_tenth(job: LoadedJob) -> float | None:
    values = np.sort(job.client_accuracy[~np.isnan(job.client_accuracy)])
    return float(values[: max(1, len(values) // 10)].mean()) if len(values) else None


def _of_classes(name: str) -> Callable[[LoadedJob], float | None]:
    return lambda job: (job.summary.get("by_class") or {}).get(name, {}).get("mean")


def _share(share: float) -> str:
    """Write a share in per cent; the column's title has the sign."""
    return percent(share).removesuffix(" %")


FIGURES = (
    Column("accuracy", "accuracy %", True, _accuracy("mean"), _share, "mean over clients, each on what it is served"),
    Column("global", "global accuracy %", True, _global, _share,
           "of the whole model (its last exit; DepthFL: mean of exits), on the test samples of all clients", rare=True),
    Column("tuned", "after fine-tuning %", None, _at_the_end("personalised"), _share,
           "mean over clients that fine-tune a copy on their own data; it competes in a row of its own", rare=True),
    Column("on_all", "on all samples %", True, _at_the_end("on_all"), _share,
           "each client's model on the test samples of all clients, mean over clients", rare=True),
    Column("samples", "over samples %", True, _accuracy("sample_weighted"), _share, "each test sample counts once"),
    Column("iqr", "IQR %", False, _accuracy("iqr"), _share, "between the clients' quartiles"),
    Column("worst_tenth", "worst tenth %", True, _worst_tenth, _share, "mean of the tenth of clients served worst"),
    Column("balanced", "balanced accuracy %", True, _of_classes("balanced_accuracy"), _share,
           "each class among a client's test samples counts once; mean over clients", rare=True, of_classes=True),
    Column("macro_f1", "macro F1 %", True, _of_classes("macro_f1"), _share,
           "mean over a client's classes of their F1; mean over clients", rare=True, of_classes=True),
    Column("auc", "AUC %", True, _of_classes("auc"), _share,
           "area under the ROC curve of a class against the others; mean over a client's classes; mean over clients",
           rare=True, of_classes=True),
    Column("macs", "MACs", False, _of("cost", "training_macs"), quantity, "all clients' training, forward and back"),
    Column("network", "network MB", False, _of("cost", "network_total_mb"), megabytes, "both directions, whole job"),
    Column("round_mb", "MB a round", False, _of("cost", "network_per_round_mb"), megabytes, "both directions"),
    Column("suite", "models MB", False, _of("cost", "storage_suite_mb"), megabytes,
           "all models of the job, also those of clients that have trained one of their own"),
    Column("served", "served MB", False, _of("cost", "mean_model_mb"), megabytes,
           "what a client is served, on average"),
    Column("time", "virtual time", False, _of("time", "virtual_s"), seconds, "on FedScale's clock of devices"),
)  # fmt: skip
BY_KEY = {figure.key: figure for figure in FIGURES}
