"""Figure 3c: generated weights beside those that clients trained, and how they are distributed (claim H5)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from evals.hypemefed.arms import everyone_on
from evals.hypemefed.client_models import (
    GENERATED,
    MAE,
    NORMALISED,
    OTHERS,
    RANDOM,
    SPREAD,
    START,
    guesses,
    row,
    trained_clients,
)
from evals.hypemefed.networks import State
from evals.hypemefed.settings import BACKBONE, main
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order
from evals.paper.panels import COLORS, legend, panels, save

TRAINED = "trained"
# equal keys to those of Figure 3b's "L O", so that the job is the same
WHOLE = {**everyone_on(3), "hypemefed.multi_exit": True}
ARMS = [
    Arm("full model", {**WHOLE, **network}, data)
    for data, network in (("fashionmnist-iid", {BACKBONE: "cnn3"}), ("unimib", {}), ("svhn", {}))
]


def by_guess(runs: Sequence[Run]) -> list[Run]:
    """A row for each guess of the held-out clients' last block."""
    rows = []
    for run in runs:
        job = trained_clients(run.job)
        rows += [row(run, label, job, states) for label, states in guesses(run.job).items()]
    return rows


def densities(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """How the weights of the last block are distributed, a panel per data set; the first seed's."""
    first = {run.data: run for run in reversed(runs)}
    figure, axes = panels(experiment, list(first))
    for axis, (data, run) in zip(axes, first.items(), strict=True):
        job = trained_clients(run.job)
        shown = {TRAINED: list(job.held_out), **guesses(run.job)}
        values = {label: _weights(shown[label], job.last) for label in (TRAINED, GENERATED, RANDOM)}
        edge = float(np.quantile(np.abs(np.concatenate(list(values.values()))), 0.999))
        for number, (label, each) in enumerate(values.items()):
            axis.hist(each, 80, (-edge, edge), density=True, histtype="step", color=COLORS[number], label=label)
        axis.set_xlabel("weight")
        axis.set_ylabel("density")
        axis.set_title(data, fontsize=9)
    legend(figure, axes)
    save(figure, path)


def _weights(states: Sequence[State], names: Sequence[str]) -> np.ndarray:
    return torch.cat([state[name].flatten() for state in states for name in names]).numpy()


EXPERIMENT = Experiment(
    "fig3c",
    "Figure 3c: trained, generated and random weights",
    ARMS,
    (NORMALISED, MAE, SPREAD),
    densities,
    note="All clients train the full model that a job of all of them ended with, five epochs each. Hypernetworks "
    "learn from four fifths of the clients and generate the last block of the others from the block before. MAE "
    "compares the last block's convolutions with the client's own, relative to the size of these. spread is the "
    "standard deviation of the weights, relative to that of the trained ones. The paper has only the distributions "
    "of trained, generated and random weights.",
    rows=by_guess,
    orders=[Order(NORMALISED, other, GENERATED) for other in (RANDOM, START, OTHERS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
