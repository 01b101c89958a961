"""Perplexity on Shakespeare, counted in all ways (Tables 6 and 7): the jobs of Table 6, their networks tested anew.

The paper's public code foretells what follows each of the 80 symbols, in tests as in training, and takes the mean over
batches of exp of their mean losses: ``mean over batches, all symbols`` is what compares with its figures. Of the first
symbols little is known, so that it is above that of the last alone, which is what LEAF's task and all other scripts
here measure. Pooled is exp of the mean loss over all test samples, which is what the word means and never above the
mean over batches; Table 7 has means over clients. Batches are of the job's training size, as the public code's, in the
order of the clients.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from evals.fedoras.arms import with_twins
from evals.fedoras.settings import main
from evals.fedoras.table6 import PUBLISHED
from evals.fedoras.tiers import RANDOM, SUPERNET, has_twins, results, row, tier_label
from evals.paper import plots
from evals.paper.data import data_set
from evals.paper.experiment import Experiment, Run
from evals.paper.orders import Order
from fedscale_ext import models
from fedscale_ext.data.store import DataSet
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.util.reading import load_json

POOLED, BATCHES, CLIENTS = "perplexity", "mean over batches", "mean over clients"
ALL, ALL_BATCHES, ALL_CLIENTS = (f"{name}, all symbols" for name in (POOLED, BATCHES, CLIENTS))
CLIENTS_STD, WORST_CLIENT = "std of clients", "worst client"
_SUFFIX = {SUPERNET: "", RANDOM: "_twin"}
_AT_ONCE = 500  # samples


def perplexities(losses: np.ndarray, owner: np.ndarray, batch: int) -> dict[str, float]:
    """``losses`` float64 [samples], ``owner`` int64 [samples]: the client of each, in rising order."""
    parts = np.split(losses, range(batch, len(losses), batch))
    sums, counts = (np.bincount(owner, weights) for weights in (losses, None))
    clients = np.exp(sums[counts > 0] / counts[counts > 0])
    return {
        POOLED: float(np.exp(losses.mean())),
        BATCHES: float(np.mean([np.exp(part.mean()) for part in parts])),
        CLIENTS: float(clients.mean()),
        CLIENTS_STD: float(clients.std()),
        WORST_CLIENT: float(clients.max()),
    }


@cache
def _data(log_dir: Path) -> tuple[DataSet, int]:
    config = load_json((log_dir / "header.json").read_text(encoding="utf-8"))["config"]
    return data_set(log_dir), int(config["batch_size"])


def losses_of(log_dir: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Of a model of the job, on all test samples, client by client: the losses of the last symbol and, as a mean, of
    all symbols [samples, 2], and whose they are."""
    data, _ = _data(log_dir)
    rows = [data.test_rows(client) for client in range(1, data.num_clients + 1)]
    every = np.concatenate(rows)
    spec, state = load_model(log_dir / "models" / f"{key}.safetensors")
    module = models.build(spec)
    module.load_state_dict(state)
    parts = [every[start : start + _AT_ONCE] for start in range(0, len(every), _AT_ONCE)]
    losses = np.concatenate([symbol_losses(module, *data.tensors(part)) for part in parts])
    return losses, np.repeat(np.arange(len(rows)), list(map(len, rows)))


@torch.no_grad()
def symbol_losses(module: torch.nn.Module, x: Tensor, y: Tensor) -> np.ndarray:
    """float64 [samples, 2] of a network that is trained on all symbols: of the label, and the mean over all symbols."""
    module.train()  # it says what follows each; no layer of a recurrent space is another in training
    labels = torch.cat([x.flatten(1)[:, 1:].to(y.dtype), y[:, None]], 1)
    losses = functional.cross_entropy(module(x).float().transpose(1, 2), labels, reduction="none").double()
    return torch.stack([losses[:, -1], losses.mean(1)], 1).numpy()


def by_tier(runs: Sequence[Run]) -> list[Run]:
    """A row per tier and kind of weights."""
    rows = []
    for run in runs:
        paper = {label: {ALL_BATCHES: one[POOLED]} for label, one in PUBLISHED.get(run.arm.data, {}).items()}
        for tier in results(run)["tiers"]:
            for weights in (SUPERNET, RANDOM) if has_twins(tier) else (SUPERNET,):
                losses, owner = losses_of(run.job, f"tier{tier['tier']}{_SUFFIX[weights]}")
                last, every = (perplexities(of_symbols, owner, _data(run.job)[1]) for of_symbols in losses.T)
                more = {ALL: every[POOLED], ALL_BATCHES: every[BATCHES], ALL_CLIENTS: every[CLIENTS]}
                rows.append(row(run, tier_label(tier["tier"], weights), {**last, **more}, paper))
    return rows


EXPERIMENT = Experiment(
    "texts",
    "Tables 6 and 7: perplexity on Shakespeare",
    [with_twins("shakespeare")],
    (ALL_BATCHES, ALL, ALL_CLIENTS, POOLED, BATCHES, CLIENTS, CLIENTS_STD, WORST_CLIENT),
    plots.bars(ALL_BATCHES, POOLED),
    note="Perplexities of all networks on all clients' test samples. `all symbols` is of each symbol after those "
    "before it; its mean over batches is the paper's way. The other columns are of the symbol after 80 others. The "
    "paper's Table 7 is 2.93 ± 1.01 (worst 8.43) with FedorAS and 3.07 ± 1.10 (8.36) from random weights, each client "
    "on its tier's network.",
    rows=by_tier,
    orders=[Order(POOLED, tier_label(tier, RANDOM), tier_label(tier)) for tier in range(1, 6)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
