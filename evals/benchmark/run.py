"""One job of the benchmark: its keys, its budget, and the figures of the table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evals.benchmark.devices import write_devices
from evals.benchmark.methods import Row
from evals.benchmark.tasks import BENCHMARK, PARTITION, Task
from evals.paper import jobs
from fedscale_ext.data.store import open_data_set

RATES = (0.03, 0.1, 0.3)
"""Learning rates, of which a job on a seed of its own chooses."""
SHARES = (0.25, 0.5, 1.0)
"""Shares of the budget at which accuracies are compared."""
_EVALUATIONS = 12
_JOB = Path(__file__).resolve().parent / "job.yml"


def job_keys(name: str, task: Task, row: Row, seed: int, rate: float, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the job_conf keys of a row on a task with a seed and a learning rate, but for what ends the job.

    Args:
        name: Name of the task.
        task: The task.
        row: The row.
        seed: Seed of the partition, the devices and the job.
        rate: Learning rate of the clients.
        folders: ``data``, ``sources`` and ``runs``.

    """
    data = BENCHMARK.prepared(PARTITION.get(name, name), folders["data"], folders["sources"])
    clients = open_data_set(data, BENCHMARK.data[name].kind, input_shape=task.shape, test_split=0.0).client_names
    devices = write_devices(clients, seed, folders["runs"] / "devices" / f"{name}-{seed}.csv")
    return {
        "data_set": BENCHMARK.data[name].kind,
        "data_dir": str(data),
        "data_seed": seed,
        "device_conf_file": str(devices),
        "method": row.method,
        **task.keys,
        **row.job_keys(task, folders["runs"] / "models" / name),
        **dict.fromkeys(("learning_rate", *row.rate_keys), rate),
    }


def trained(
    name: str, task: Task, row: Row, seed: int, rate: float, folders: Mapping[str, Path]
) -> tuple[dict[str, Any], Path]:
    """Train a job until its clients have spent the budget; return its keys and log folder."""
    keys = job_keys(name, task, row, seed, rate, folders)
    probe = jobs.train({**keys, "rounds": 2, "eval_interval": 100}, name, seed, _JOB, folders["runs"], in_process=False)
    per_round = jobs.summary(probe)["cost"]["training_macs"] / 2
    interval = max(1, round(task.budget_macs / per_round / _EVALUATIONS))
    keys |= {"stop_macs": task.budget_macs, "eval_interval": interval}
    return keys, jobs.train(keys, name, seed, _JOB, folders["runs"], in_process=False)


def figures(log_dir: Path, budget: float) -> dict[str, float]:
    """Return the figures of a job by the table's columns."""
    summary = jobs.summary(log_dir)
    own = jobs.client_accuracies(log_dir)
    own = own[~np.isnan(own)]
    cost = summary["cost"]
    points = jobs.accuracy_by_cost(log_dir)
    worst = np.sort(own)[: max(1, round(0.1 * len(own)))]
    lines = (log_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines]
    found = {
        "own %": 100 * float(own.mean()),
        "worst tenth %": 100 * float(worst.mean()),
        "client TMACs": cost["training_macs"] / 1e12,
        "network MB": cost["network_total_mb"],
        "virtual h": summary["time"]["virtual_s"] / 3600 if "virtual_s" in summary["time"] else float("nan"),
        "rounds": float(summary["rounds"]),
        "models": float(len(summary["models"])),
        "wall s": summary["time"]["wall_s"],
        "server s": sum(one["seconds"].get(part, 0.0) for one in rounds for part in ("aggregate", "evolve")),
    }
    if summary.get("on_all"):
        found["everybody's %"] = 100 * summary["on_all"]["mean"]
    for share in SHARES:
        reached = [accuracy for macs, accuracy in points if macs <= share * 1.02 * budget / 1e12]
        found[f"own % at {100 * share:.0f}"] = reached[-1] if reached else float("nan")
    return found
