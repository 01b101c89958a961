"""Figure 4: accuracy of each client by its tier's model (claim A6); the jobs of Table 6."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.ticker import MaxNLocator

from evals.fedoras.arms import FEDORAS, MEAN, SPREAD, WORST, with_twins
from evals.fedoras.settings import main
from evals.fedoras.table7 import over_clients
from evals.fedoras.tiers import RANDOM
from evals.paper.experiment import Experiment, Run
from evals.paper.jobs import summary
from evals.paper.panels import COLORS, legend, panels, save

_KEYS = {FEDORAS: "", RANDOM: "_twin"}


def own_accuracies(run: Run) -> np.ndarray:
    """float64 [clients], in %: each client's by its tier's model, with the weights that the row is of."""
    accuracy = summary(run.job)["accuracy"]
    named = {title: figures["per_client"] for title, figures in accuracy["named"].items()}
    accuracies = [named[key + _KEYS[run.arm.label]][client] for client, key in enumerate(accuracy["served"])]
    return 100 * np.array([np.nan if value is None else value for value in accuracies], dtype=np.float64)


def ascending(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """Clients in the order of their accuracy, its mean over seeds, and their standard deviation where there are
    several."""
    datas = list(dict.fromkeys(run.data for run in runs))
    figure, axes = panels(experiment, datas)
    for axis, data in zip(axes, datas, strict=True):
        for number, label in enumerate(_KEYS):
            accuracies = np.array([own_accuracies(run) for run in runs if (run.arm.label, run.data) == (label, data)])
            accuracies = accuracies[:, ~np.isnan(accuracies).any(0)] if accuracies.size else accuracies
            if not accuracies.size:
                continue
            order = accuracies.mean(0).argsort()
            positions, mean, std = np.arange(len(order)), accuracies.mean(0)[order], accuracies.std(0)[order]
            axis.errorbar(positions, mean, std if len(accuracies) > 1 else None, fmt="o", markersize=3,
                          color=COLORS[number], elinewidth=0.7, label=label)  # fmt: skip
        axis.set_xlabel("clients, by accuracy")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        axis.set_ylabel("accuracy of a client, %")
        axis.set_title(data, fontsize=9)
    legend(figure, axes)
    save(figure, path)


EXPERIMENT = Experiment(
    "fig4",
    "Figure 4: accuracy of each client",
    [with_twins("cifar10-h0.1")],
    (MEAN, SPREAD, WORST),
    ascending,
    rows=over_clients,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
