"""Training on all clients' samples together, without a federation: a floor (linear) and a ceiling."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from evals.benchmark.tasks import Task
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.streams import stream, torch_stream
from fedscale_ext.data.job_data import open_job_data
from fedscale_ext.data.store import DataSet

LINEAR_STEPS = 20_000
"""Steps of the linear model, which costs too little for the budget to end it."""


def figures(task: Task, network: str, keys: Mapping[str, Any], seed: int, job: Path) -> dict[str, float]:
    """Train a model on all clients' training samples; return the figures that it has of the table's columns.

    Args:
        task: The task, whose budget ends the training of a network.
        network: "linear", or the name of one of the task's networks.
        keys: job_conf keys, which say what data clients have, and the learning rate.
        seed: Seed of the initial weights and of the batches.
        job: The configuration that the keys change.

    """
    began = time.monotonic()
    torch.set_num_threads(1)
    data = open_job_data(load_config(job, [f"{key}={json.dumps(value)}" for key, value in keys.items()]))
    rows = np.concatenate([data.train_rows(client + 1) for client in range(data.num_clients)])
    batch = int(task.keys["batch_size"])
    model, steps, macs = _model(task, network, seed, batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=keys["learning_rate"])
    draws = stream(seed, "benchmark", "pooled")
    for _ in range(steps):
        inputs, labels = data.tensors(draws.choice(rows, batch, replace=False))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    own, on_all = _accuracies(model.eval(), data)
    tenth = max(1, round(0.1 * len(own)))
    return {
        "own %": 100 * float(own.mean()),
        "own % at 100": 100 * float(own.mean()),
        "on all %": 100 * on_all,
        "worst tenth %": 100 * float(np.sort(own)[:tenth].mean()),
        "client TMACs": steps * batch * macs / 1e12,
        "wall s": time.monotonic() - began,
    }


def _model(task: Task, network: str, seed: int, batch: int) -> tuple[nn.Module, int, float]:
    """Return a fresh model, its number of steps, and the training MACs of a sample."""
    if network == "linear":
        linear = nn.Linear(int(np.prod(task.shape)), task.classes)
        nn.init.zeros_(linear.weight)
        return nn.Sequential(nn.Flatten(), linear), LINEAR_STEPS, 2.0 * linear.weight.numel()
    spec = task.networks.specs(task.shape, task.classes)[network]
    model = models.build(spec)
    model.load_state_dict(models.initial_state(spec, torch_stream(seed, "benchmark", "pooled")))
    macs = models.cost(spec).training_macs
    return model.train(), max(1, round(task.budget_macs / (batch * macs))), macs


def _accuracies(model: nn.Module, data: DataSet) -> tuple[np.ndarray, float]:
    """Return the accuracy on each tested client's samples, float64 [clients], and on all of them together."""
    right, counts = [], []
    with torch.no_grad():
        for client in range(data.num_clients):
            rows = data.test_rows(client + 1)
            if len(rows):
                inputs, labels = data.tensors(rows)
                right.append(int((model(inputs).argmax(1) == labels).sum()))
                counts.append(len(rows))
    return np.array(right) / np.array(counts), sum(right) / sum(counts)
