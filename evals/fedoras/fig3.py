"""Figure 3: accuracy and MACs of FedorAS, FjORD and random architectures that each tier trains for itself."""

from collections.abc import Sequence

from evals.fedoras.arms import ACCURACY, FEDORAS, MMACS, with_twins
from evals.fedoras.fig1 import AWARE, by_architecture, random_architectures
from evals.fedoras.points import kinds
from evals.fedoras.settings import main
from evals.fedoras.table5 import fjord, with_costs
from evals.paper.experiment import Experiment, Run

DATA = "cifar10-h1"


def all_points(runs: Sequence[Run]) -> list[Run]:
    """A row per tier or width."""
    jobs = [run for run in runs if run.arm.keys["method"] == "fedoras"]
    return [*by_architecture(jobs), *with_costs([run for run in runs if run not in jobs])]


EXPERIMENT = Experiment(
    "fig3",
    f"Figure 3: accuracy by MACs: {FEDORAS}, FjORD, random architectures",
    [with_twins(DATA), *fjord(DATA), *random_architectures(DATA, [AWARE])],
    (ACCURACY, MMACS),
    kinds(MMACS, ACCURACY),
    note="Random architectures are Figure 1's, trained by clients of their tier and above. Their MMACs and FedorAS's "
    "are counted as brackets are, with normalisation and activations, some per cent above FjORD's products.",
    rows=all_points,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
