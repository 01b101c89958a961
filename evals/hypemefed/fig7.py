"""Figure 7: global accuracy of HypeMeFed and its baselines (claims H1, H2)."""

from evals.hypemefed.arms import ABOVE_RIVALS, BETWEEN, COLUMNS, GLOBAL, HYPEMEFED, OWN_EXIT, STALE, stale, suite
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment
from evals.paper.orders import Order

EXPERIMENT = Experiment(
    "fig7",
    "Figure 7: accuracy of the global model",
    [arm for data in ("unimib", "svhn", "stl10") for arm in (*suite(data), stale(data))],
    COLUMNS,
    plots.by_round,
    note="`global` is the last exit of the whole model on all clients' test samples, `late` its mean over the "
    "evaluations in the last quarter of the rounds. `accuracy` is the public code's measure: the clients' mean, "
    "each by its own deepest exit on its own test samples. Old layers: a layer that a client lacks counts in the mean "
    "as it was at the start of the round. The public code does this, since it never applies what it generates. "
    "BatchNorm's statistics are re-estimated before the tests of all rows. Rows without `accuracy, late %` are "
    "older, where each method had its own rule. The paper has only curves. DepthFL is not in the paper. HeteroFL's "
    "and FedRolex's levels have 1, 3/4 and 1/2 of the channels.",
    orders=[*BETWEEN, *ABOVE_RIVALS, *(Order(column, HYPEMEFED, STALE) for column in (GLOBAL, OWN_EXIT))],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
