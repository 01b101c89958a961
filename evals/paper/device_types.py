"""Figures by type of device, of methods whose clients have types or levels: accuracy, rounds until it settles, and
time, modelled energy and transmission until then (docs/device-types.md)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evals.paper.jobs import summary
from fedscale_ext.metrics.accuracy import client_accuracy
from fedscale_ext.metrics.capacity_groups import group_means
from fedscale_ext.metrics.convergence import settled
from fedscale_ext.metrics.job_folder.round_records import read_records

if TYPE_CHECKING:
    from evals.paper.experiment import Run

TYPES = ("large", "medium", "small")
MEAN = "mean"  # over the types; of accuracy over the devices
_UNTIL = {"MB": "one_way_mb", "s": "time_s", "J": "modelled_energy_j"}  # figures until a type has settled
BEFORE, AFTER = "before training %", "after training %"
AT_THE_END = {  # figures of the final models alone
    "global %": "on_all",
    "personalised %": "personalised",
    BEFORE: "before_training",
    AFTER: "after_training",
}
KEPT, UNSETTLED = "kept %", "types that settle last"
Curve = Sequence[tuple[int, float]]  # (round, accuracy in [0, 1])


def columns(what: str) -> tuple[str, ...]:
    """The figure of each type, largest first, and of all: of % (mean over the evaluations in the last quarter of the
    rounds), rounds, MB (what one device hands in, summed up), s and J; of the final models, where the job was asked for
    it, global % (each device's model on all devices' test samples), personalised %, before training % and after
    training % (each device's model around the local training of one more round), and of methods that prune kept %
    (share of the one model's parameters)."""
    return tuple(f"{kind} {what}" for kind in (*TYPES, MEAN))


def with_types(runs: Sequence["Run"], dealt: Mapping[tuple[str, int], np.ndarray]) -> list["Run"]:
    """Each run with these columns, "traffic MB" of all devices in both directions, and how many types settle at the
    last evaluation. Figures of the final models, and accuracies and rounds of a job that knows no types, are by the
    types that ``dealt`` has for its data and seed, int64 [clients]; the mean's alone where it has none."""
    shown = []
    for run in runs:
        shown.append(replace(run, figures={**run.figures, **figures(run.job, dealt.get((run.data, run.seed)))}))
    return shown


def types_of_clients(log_dir: Path) -> np.ndarray:
    """int64 [clients], the place of each client's type in ``TYPES``, of a job that serves each type, or each client, a
    model of that type."""
    job = summary(log_dir)
    names = [row["type"] for row in job["results"]["types"]]
    return np.array([names.index(key.partition("@")[0]) for key in job["accuracy"]["served"]], dtype=np.int64)


def figures(log_dir: Path, type_of: np.ndarray | None = None) -> dict[str, float]:
    """Of one job; ``own`` is for one that knows no types, which has the mean's figures alone without."""
    job = summary(log_dir)
    *types, every = job["results"]["types"]
    by_column = {"traffic MB": every["traffic_mb"]}
    if len(types) == len(TYPES):
        curves = {kind: row["curve"] for kind, row in zip(TYPES, types, strict=True)}
        sizes = [row["clients"] for row in types]
        for unit, name in _UNTIL.items():
            values = [row[name] for row in types]
            by_column |= dict(zip(columns(unit), [*values, float(np.mean(values))], strict=True))
    else:
        curves = {MEAN: types[0]["curve"]} if type_of is None else _split(log_dir, type_of)
        sizes = [1] if type_of is None else np.bincount(type_of, minlength=len(TYPES)).tolist()
        by_column |= {f"{MEAN} {unit}": types[0][name] for unit, name in _UNTIL.items()}
    for what, values in _of_final_models(job).items():
        by_column |= {f"{MEAN} {what}": 100 * float(np.nanmean(values))}
        if type_of is not None:
            by_type = (100 * group_means(values, type_of, len(TYPES))).tolist()
            by_column |= {f"{kind} {what}": value for kind, value in zip(TYPES, by_type, strict=True)}
    reached = {kind: late(curve, job["rounds"]) for kind, curve in curves.items()}
    until = {kind: float(settled_round(curve)) for kind, curve in curves.items()}
    by_column[UNSETTLED] = float(sum(until[kind] == curve[-1][0] for kind, curve in curves.items()))
    reached[MEAN] = float(np.average(list(reached.values()), weights=sizes))
    until[MEAN] = float(np.mean(list(until.values())))
    return by_column | {f"{kind} %": 100 * value for kind, value in reached.items()} | {
        f"{kind} rounds": value for kind, value in until.items()
    }  # fmt: skip


def _of_final_models(job: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """float64 [clients] in [0, 1], NaN for a client without."""
    per_client = {what: job[name]["per_client"] for what, name in AT_THE_END.items() if job.get(name)}
    if "kept_share" in job["results"]:
        per_client[KEPT] = job["results"]["kept_share"]
    return {what: np.array([np.nan if one is None else one for one in values]) for what, values in per_client.items()}


def late(curve: Curve, rounds: int) -> float:
    """Mean over the evaluations in the last quarter of the rounds: single ones move by points."""
    return float(np.mean([value for round, value in curve if round > 0.75 * rounds]))


def settled_round(curve: Curve) -> int:
    """The round in which a curve has settled, by the package's rule."""
    index = settled([value for _, value in curve])
    assert index is not None
    return int(curve[index][0])


def _split(log_dir: Path, type_of: np.ndarray) -> Mapping[str, Curve]:
    curves: dict[str, list[tuple[int, float]]] = {kind: [] for kind in TYPES}
    for number, accuracies in evaluations(log_dir):
        for kind, value in zip(TYPES, group_means(accuracies, type_of, len(TYPES)), strict=True):
            curves[kind].append((number, float(value)))
    return curves


def evaluations(log_dir: Path) -> Iterable[tuple[int, np.ndarray]]:
    """(round, accuracy of each client in [0, 1]) of each evaluation of a job."""
    for record in read_records(log_dir / "metrics.jsonl"):
        if record.evaluation is not None:
            yield record.round, client_accuracy(record.evaluation)


def mean_curve(log_dir: Path) -> list[tuple[int, float]]:
    """(round, mean accuracy over the clients) of each evaluation."""
    return [(number, float(np.nanmean(accuracies))) for number, accuracies in evaluations(log_dir)]


def first_reached(curve: Curve, accuracy: float) -> int | None:
    """The first round in which the mean of up to three evaluations is ``accuracy`` at least."""
    values = [value for _, value in curve]
    for index, (number, _) in enumerate(curve):
        if np.mean(values[max(0, index - 2) : index + 1]) >= accuracy:
            return int(number)
    return None


def internals(log_dir: Path) -> list[dict[str, Any]]:
    """What a job recorded of its method, a round each."""
    return [json.loads(line) for line in (log_dir / "internals.jsonl").read_text(encoding="utf-8").splitlines()]
