"""Figure 4: trained, generated and random weights of a client's last layer as pictures."""

from collections.abc import Sequence
from pathlib import Path

from evals.hypemefed import matrices
from evals.hypemefed.client_models import GENERATED, MAE, NORMALISED, RANDOM, START, guesses, trained_clients
from evals.hypemefed.fig3c import ARMS, by_guess
from evals.hypemefed.settings import main
from evals.paper.experiment import Experiment, Run

_SHOWN = (GENERATED, START, RANDOM)


def pictures(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """The first data set's and seed's first client that was held out; the last of the last block's convolutions."""
    log_dir = runs[0].job
    job = trained_clients(log_dir)
    name, by_label = job.last[-1], guesses(log_dir)
    matrices.draw(experiment, path, job.held_out[0][name], {label: by_label[label][0][name] for label in _SHOWN})


EXPERIMENT = Experiment(
    "fig4",
    "Figure 4: weights of a client's last layer",
    ARMS[:1],
    (NORMALISED, MAE),
    pictures,
    note="Jobs and clients are those of `fig3c`. Pictures show a corner of the last convolution as the matrix of which "
    "components are taken. One is a client's own, from which hypernetworks did not learn; the others stand for "
    "it. Below are the differences in the same colours. The layer before the client's training is not in the "
    "paper.",
    rows=by_guess,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
