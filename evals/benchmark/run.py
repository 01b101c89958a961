"""One job of the benchmark: its keys, its budget, and the figures of the table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from evals.benchmark.devices import write_devices
from evals.benchmark.methods import Row
from evals.benchmark.tasks import BENCHMARK, PARTITION, Task
from evals.paper import jobs
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.data.store import open_data_set
from fedscale_ext.models.memory import training_memory

SHARES = (0.25, 0.5, 1.0)
"""Shares of the budget at which accuracies are compared."""
JOB = Path(__file__).resolve().parent / "job.yml"


def job_keys(name: str, task: Task, row: Row, seed: int, rate: float, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Return the job_conf keys of a row on a task with a seed and a learning rate.

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
        "stop_macs": task.budget_macs,
        "eval_macs": task.budget_macs / task.tests,
        **row.job_keys(task, folders["runs"] / "models" / name),
        "learning_rate": rate,
        **{key: factor * rate for key, factor in row.rate_keys.items()},
    }


def trained(keys: Mapping[str, Any], name: str, seed: int, runs: Path) -> Path:
    """Train a job in this process until its clients have spent the budget; return its log folder."""
    return jobs.train({**keys, "count_server_macs": True}, name, seed, JOB, runs, in_process=True)


def plan(keys: Mapping[str, Any], row: Row) -> str:
    """Return ten digits of all that decides a row's jobs but seed and learning rate: keys, and networks they name.

    A key that is a multiple of the learning rate counts by its factor.
    """
    of_a_seed = ("data_dir", "data_seed", "device_conf_file", "learning_rate")
    settings = yaml.safe_load(JOB.read_text(encoding="utf-8"))["job_conf"]
    shared = {key: value for setting in settings for key, value in setting.items()}
    decisive = {key: value for key, value in keys.items() if key not in of_a_seed}
    return jobs.digest({**shared, **decisive, **row.rate_keys})


def figures(log_dir: Path, task: Task) -> dict[str, float]:
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
        "server TMACs": cost["server_macs"] / 1e12,
        "up MB": cost["upload_bytes"] / 1e6,
        "down MB": cost["download_bytes"] / 1e6,
        "virtual h": summary["time"]["virtual_s"] / 3600,
        "rounds": float(summary["rounds"]),
        "models": float(len(summary["models"])),
        "device MB": max(_step_mb(model["spec"], task) for model in summary["models"] if model["serves"]),
        "beyond capacity": float(summary["beyond_capacity"]),
        "wall s": summary["time"]["wall_s"],
        "server s": sum(one["seconds"].get(part, 0.0) for one in rounds for part in ("assign", "aggregate", "evolve")),
    }
    if summary.get("on_all"):
        found["on all %"] = 100 * summary["on_all"]["mean"]
    for share in SHARES:
        spent = [accuracy for macs, accuracy in points if macs >= share * task.budget_macs / 1e12]
        found[f"own % at {100 * share:.0f}"] = spent[0] if spent else float("nan")
    return found


def _step_mb(spec: Mapping[str, Any], task: Task) -> float:
    """Return the megabytes of a training step of a model, as a job's summary has its spec."""
    return sum(training_memory(ModelSpec.from_json(spec), int(task.keys["batch_size"]))) / 1e6
