"""Figure 11: weights of a client's last layer, and generated ones by the number of singular components (claim H5)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from evals.hypemefed import matrices
from evals.hypemefed.client_models import GENERATED, MAE, NORMALISED, RANDOM, SPREAD, guesses, row, trained_clients
from evals.hypemefed.fig3c import WHOLE
from evals.hypemefed.settings import BACKBONE, main
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order

_K: dict[str, int | Literal["all"]] = {"k=25": 25, "k=50": 50, "k=100": 100, "k=all": "all"}


def by_components(runs: Sequence[Run]) -> list[Run]:
    """A row for each k, and one for random weights."""
    rows = []
    for run in runs:
        job = trained_clients(run.job)
        rows += [row(run, label, job, guesses(run.job, k)[GENERATED]) for label, k in _K.items()]
        rows.append(row(run, RANDOM, job, guesses(run.job, "all")[RANDOM]))
    return rows


def pictures(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """The first seed's first client that was held out; the last of the last block's convolutions."""
    log_dir = runs[0].job
    job = trained_clients(log_dir)
    name = job.last[-1]
    shown = {label: guesses(log_dir, k)[GENERATED][0][name] for label, k in _K.items()}
    shown[RANDOM] = guesses(log_dir, "all")[RANDOM][0][name]
    matrices.draw(experiment, path, job.held_out[0][name], shown)


EXPERIMENT = Experiment(
    "fig11",
    "Figure 11: generated weights by number of singular components",
    [
        Arm("full model", {**WHOLE, BACKBONE: "vgg_svhn"}, "unimib", scales=("smoke", "small")),
        Arm("full model", WHOLE, "unimib", scales=("paper",)),
    ],
    (NORMALISED, MAE, SPREAD),
    pictures,
    note="As in `fig3c` and `fig4`, with the paper's VGG for SVHN at small scale: in the small network k = 100 is all "
    "components. All k learn from the same clients' weights, so that their errors can be compared.",
    rows=by_components,
    orders=[
        *(Order(NORMALISED, RANDOM, label) for label in _K),
        *(Order(NORMALISED, less, more) for less, more in pairwise(_K)),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
