"""What each of a job's final models is worth: to all clients, and to those that another of them is served.

    python -m evals.fedtrans.each_model LOG_DIR...

Told as a table for each job: a column per group of clients, by the model that they were served in the last test, a
row per model. Where larger models are no better for all clients than the base, growing cannot pay, whoever is served
which. Below them stand what the job's own assignment reached ("served"), what a random choice among the models that a
client affords would reach on average, and the oracle: for each client the best of these by its own test samples. No
assignment can be above the oracle, and none may know what it knows; with few test samples a client, much of its lead
is luck. Not in the paper.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from evals.paper.data import data_set
from evals.paper.floors import client_shares
from evals.paper.jobs import summary
from evals.paper.orders import number
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import DataSet
from fedscale_ext.methods.fedtrans import client_manager
from fedscale_ext.metrics.job_folder.clients_file import read_clients
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import read_records

_AT_ONCE = 500  # samples


def correct(file: Path, data: DataSet) -> np.ndarray:
    """Share of each client's test samples that the model of a file gets right: float64 [clients], NaN without any."""
    spec, state = load_model(file)
    module = models.build(spec)
    module.load_state_dict(state)
    module.eval()
    rows = data.test.rows
    right = np.zeros(len(rows), dtype=bool)
    with torch.no_grad():
        for begin in range(0, len(rows), _AT_ONCE):
            x, y = data.tensors(rows[begin : begin + _AT_ONCE])
            right[begin : begin + len(y)] = (module(x).argmax(1) == y).numpy()
    return client_shares(right, data.test)


def table(log_dir: Path) -> str:
    """Markdown."""
    data = data_set(log_dir)
    last = [record.evaluation for record in read_records(log_dir / "metrics.jsonl") if record.evaluation][-1]
    served = np.array(last.serve)
    ranked = sorted(summary(log_dir)["models"], key=lambda model: model["cost"]["forward_macs"])
    keys = [model["key"] for model in ranked]
    worth = np.stack([100 * correct(log_dir / "models" / f"{key}.safetensors", data) for key in keys])
    groups = [np.ones(len(served), dtype=bool), *(served == key for key in keys)]
    heads = ["all", *(f"served {key}" for key in keys)]
    lines = [f"{log_dir.parent.name}: mean client accuracy %", ""]
    columns = ["model", "MMACs", *(f"{head} ({group.sum()})" for head, group in zip(heads, groups, strict=True))]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    macs = [model["cost"]["forward_macs"] for model in ranked]
    rows = [(key, f"{cost / 1e6:.3g}", shares) for key, cost, shares in zip(keys, macs, worth, strict=True)]
    for label, shares in assigned(worth, macs, served == np.array(keys)[:, None], _capacity(log_dir)).items():
        rows.append((label, "", shares))
    for label, cost, shares in rows:
        tested = ~np.isnan(shares)
        cells = [number(shares[group & tested].mean()) if (group & tested).any() else "–" for group in groups]
        lines.append("| " + " | ".join([label, cost, *cells]) + " |")
    return "\n".join(lines) + "\n"


def assigned(
    worth: np.ndarray, macs: Sequence[float], serves: np.ndarray, capacity: np.ndarray | None
) -> dict[str, np.ndarray]:
    """By row, what each client has by an assignment, [clients]: ``worth`` float64 [models, clients] (NaN: untested)
    and ``serves`` bool [models, clients], models by rising ``macs``. Without capacities, as served alone."""
    rows = {"served": np.where(serves.any(0), worth[serves.argmax(0), np.arange(worth.shape[1])], np.nan)}
    if capacity is not None:
        fits = client_manager.compatible(capacity, macs).T
        rows["random, of those that fit"] = np.where(fits, worth, 0.0).sum(0) / fits.sum(0)
        rows["oracle, of those that fit"] = np.where(fits, worth, -np.inf).max(0)
    return rows


def _capacity(log_dir: Path) -> np.ndarray | None:
    clients = read_clients(log_dir)
    return None if clients is None else clients.capacity


def main(argv: Sequence[str]) -> None:
    if not argv:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    for name in argv:
        if not (Path(name) / "summary.json").is_file():
            sys.exit(f"{name} has no summary.json: name the log folder of a finished job")
        try:
            print(table(Path(name)))
        except UserError as error:
            sys.exit(f"{name}: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
