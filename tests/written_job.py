"""Log folders of jobs that never ran, finished and not, for the tests of reports and leaderboards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from confusions import half_areas, matching
from synthetic_job import header, models, records

from fedscale_ext.core.types import personal_version
from fedscale_ext.metrics.job_folder.clients_file import write_clients
from fedscale_ext.metrics.job_folder.recorder import Recorder
from fedscale_ext.metrics.summary import JobResult, summarise, write_summary
from fedscale_ext.population.population import Population
from fedscale_ext.report.job.tables import write_markdown

CLIENTS = 62  # of synthetic_job: the last two are untested
LINEAGE = {"m0": {"parent": None, "birth": 0, "steps": []}, "m1": {"parent": "m0", "birth": 7, "steps": ["widen c0"]}}


def capacities() -> np.ndarray:
    """float64[clients]: client c affords c thousand MACs."""
    return 1e3 * np.arange(1, CLIENTS + 1)


def names() -> list[str]:
    """What the data call the clients."""
    return [f"cam {client}" for client in range(1, CLIENTS + 1)]


def write_job(
    folder: Path, *, seed: int = 0, method: str = "fedtrans", data_set: str = "femnist", generated: bool = False,
    finished: bool = True, rounds: int = 20, clients: bool = True, job_name: str | None = None,
    settings: dict[str, Any] | None = None, shift: float = 0.0, whole: float | None = None,
    personal: bool = False, tuned: float | None = None, failed: dict[str, int] | None = None,
    affords: float = 1.0, classes: int | None = None, auc: bool = False, **head: Any,
) -> Path:  # fmt: skip
    """A job's folder; ``settings`` are keys of its configuration, ``shift`` is added to its accuracies, ``whole``
    is what its global model reaches, ``personal`` serves each client its own version, ``tuned`` is what each reaches
    after fine-tuning, ``failed`` are reasons of clients that fail in the first round, ``affords`` multiplies
    capacities, ``classes`` are counted in its last test, with ``auc`` that of each is one half, ``head``
    goes into its header."""
    job = header(generated=generated)
    flat = {"rounds": rounds if finished else 2 * rounds, "data_set": data_set, "model": "resnet18", "seed": seed,
            "method": method, "learning_rate": 0.05}  # fmt: skip
    job |= {"job_name": job_name or folder.name, "method": method, "seed": seed, "params": {}, **head}
    job["config"] = {"eval_interval": 1, **flat, **(settings or {})}
    written = Recorder(folder, header=job, internals=False)
    history = records(rounds, every=10)
    history[0].failed = failed or history[0].failed
    for record in history:
        if personal and record.evaluation is not None:
            record.evaluation = replace(record.evaluation, serve=tuple(map(personal_version, record.evaluation.serve)))
        if classes is not None and record is history[-1] and record.evaluation is not None:
            record.evaluation = replace(record.evaluation, confusion=matching(record.evaluation, classes))
            if auc:
                record.evaluation = replace(record.evaluation, auc=half_areas(record.evaluation))
        written.round(record)
    written.close()
    population = Population(np.ones(CLIENTS), np.ones(CLIENTS), None, "made")
    if clients:
        write_clients(folder, affords * capacities(), population, np.arange(1, CLIENTS + 1), names())
    if finished:
        summary = summarise(
            job, models(), JobResult(history, lineage=LINEAGE), client_names=names() if clients else None
        )
        for name in ("mean", "sample_weighted"):
            summary["accuracy"][name] += shift
        if tuned is not None:
            summary["personalised"] = {**summary["accuracy"], "mean": tuned, "per_client": [tuned] * CLIENTS}
        if whole is not None:
            summary["accuracy"]["named"]["global"] = {"accuracy": whole, "loss": 1.0}
        write_summary(folder, summary)
        write_markdown(folder, summary)
    return folder
