"""What each of a job's final models is worth: to all clients, and to those that another of them is served.

    python -m evals.fedtrans.each_model LOG_DIR...

Told as a table for each job: a column per group of clients, by the model that they were served in the last test, a
row per model. Where larger models are no better for all clients than the base, growing cannot pay, whoever is served
which. Not in the paper.
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
from fedscale_ext.data.store import DataSet
from fedscale_ext.errors import UserError
from fedscale_ext.metrics.models import load_model
from fedscale_ext.metrics.records import read_records

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
    found = sorted(summary(log_dir)["models"], key=lambda model: model["cost"]["forward_macs"])
    keys = [model["key"] for model in found]
    groups = [np.ones(len(served), dtype=bool), *(served == key for key in keys)]
    heads = ["all", *(f"served {key}" for key in keys)]
    lines = [f"{log_dir.parent.name}: mean client accuracy %", ""]
    columns = ["model", "MMACs", *(f"{head} ({group.sum()})" for head, group in zip(heads, groups, strict=True))]
    lines += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for model in found:
        shares = 100 * correct(log_dir / "models" / f"{model['key']}.safetensors", data)
        tested = ~np.isnan(shares)
        cells = [number(shares[group & tested].mean()) if (group & tested).any() else "–" for group in groups]
        lines.append("| " + " | ".join([model["key"], f"{model['cost']['forward_macs'] / 1e6:.3g}", *cells]) + " |")
    return "\n".join(lines) + "\n"


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
