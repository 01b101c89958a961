"""What the tables and figures show of jobs: figures by type of device, and transmission as the paper counts it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evals.moss.arms import ACCURACY, GLOBAL, LOCAL, PRUNING
from evals.moss.settings import TYPED
from evals.paper.device_types import TYPES, UNSETTLED, columns, types_of_clients, with_types
from evals.paper.experiment import Run
from evals.paper.jobs import summary
from evals.paper.orders import Row

_PRUNING = {keys["method"] for keys in PRUNING.values()}
_EXCHANGED = (*columns("MB"), *columns("s"), *columns("J"), "traffic MB", "network MB / round")


def by_type(runs: Sequence[Run]) -> list[Run]:
    """The runs by type of device. As in the paper's Table 4, a system that prunes hands in, in each round, as much as
    Moss's device of the type does, whatever is left of its network (189.8 MB are 21 times the 9.036 MB of Medium, and
    so on); what really travels is in "traffic MB". Local training, which is a FedMD that nobody learns of, exchanges
    nothing: it has no such figures. Moss deals the same types to the same devices as the systems that distil: a job of
    these, or of local training, tells them too."""
    typed: dict[tuple[str, int], Run] = {}
    for run in runs:
        if run.arm.keys.get("method") in TYPED:
            typed.setdefault((run.data, run.seed), run)
    sizes = {key: model_sizes(run) for key, run in typed.items()}
    shown = []
    for run in with_types(runs, {key: dealt_types(run) for key, run in typed.items()}):
        if run.arm.keys.get("method") in _PRUNING:
            run = replace(run, figures=charged(run.figures, sizes.get((run.data, run.seed))))
        elif run.arm.label == LOCAL:
            left = {name: value for name, value in run.figures.items() if name not in _EXCHANGED}
            run = replace(run, figures=left)
        shown.append(run)
    return shown


def dealt_types(run: Run) -> np.ndarray:
    """int64 [clients], the place of each device's type in a job that is told the types' models."""
    return types_of_clients(run.job)


def model_sizes(run: Run) -> list[float]:
    """MB of each type's model in such a job, largest type first."""
    job = summary(run.job)
    sizes = {model["key"]: model["cost"]["bytes"] / 1e6 for model in job["models"]}
    return [sizes[row["type"]] for row in job["results"]["types"][: len(TYPES)]]


def charged(figures: Mapping[str, float], sizes: Sequence[float] | None) -> dict[str, float]:
    """The figures with a model of the type (``sizes`` MB) handed in by each device in each round; without transmission
    where these, or the rounds of the types, are not known."""
    without_transmission = {name: value for name, value in figures.items() if name not in columns("MB")}
    rounds = [figures.get(f"{kind} rounds") for kind in TYPES]
    if sizes is None or None in rounds:
        return without_transmission
    values = [size * float(number or 0.0) for size, number in zip(sizes, rounds, strict=True)]
    return without_transmission | dict(zip(columns("MB"), [*values, float(np.mean(values))], strict=True))


def says_nothing_of_convergence(rows: Sequence[Row], _: Sequence[Row]) -> dict[tuple[str, str], str]:
    """Rows whose rounds until accuracies settle are not to be compared, by data set and label, and why: such as are no
    more accurate than local training, on devices' own samples and on all's alike (what has collapsed settles at once),
    or have a type that settles at the last evaluation (it might have gone on)."""
    local = {row["data"]: row["figures"] for row in rows if row["label"] == LOCAL}
    reasons = {}
    for row in rows:
        mine, local_figures = row["figures"], local.get(row["data"])
        if row["label"] == LOCAL or ACCURACY not in mine:
            continue
        both = (ACCURACY, GLOBAL)
        if local_figures is None or not all(name in mine and name in local_figures for name in both):
            why = "has nothing beside it that tells whether it is more accurate than local training"
        elif all(mine[name]["mean"] <= local_figures[name]["mean"] for name in both):
            why = "is no more accurate than local training"
        elif any(mine[UNSETTLED]["values"]):
            why = "settles at the last evaluation"
        else:
            continue
        reasons[row["data"], row["label"]] = why
    return reasons
