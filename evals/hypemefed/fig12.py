"""Figure 12: errors of generated weights by the number of singular components (claim H5)."""

from itertools import pairwise

from evals.hypemefed.arms import GLOBAL
from evals.hypemefed.errors import RANDOM, with_other_guesses
from evals.hypemefed.settings import main
from evals.hypemefed.table1 import ALL, COMPONENTS, by_components
from evals.paper import plots
from evals.paper.experiment import Experiment
from evals.paper.orders import Order

MAE, NORMALISED = "MAE", "normalised MAE"
_BLOCKS = [f"{measure}, block {block}" for measure in (MAE, NORMALISED) for block in (2, 3)]
_BY_K = [f"k={k}" for k in COMPONENTS] + [ALL]
ORDERS = [
    *(Order(NORMALISED, f"{RANDOM}, {k}", k, optional=k == "k=200") for k in _BY_K),
    *(Order(NORMALISED, less, more, optional="k=200" in (less, more)) for less, more in pairwise(_BY_K)),
    Order(NORMALISED, "k=100", ALL),
]

EXPERIMENT = Experiment(
    "fig12",
    "Figure 12: errors of generated weights by number of singular components",
    by_components(),
    (NORMALISED, MAE, *_BLOCKS, "step", "cosine", "norm", GLOBAL),
    plots.bars(NORMALISED, MAE),
    note="Means over the last quarter of the rounds of |generated - trained| per weight. trained: the round's mean "
    "over those who trained the layer. normalised: relative to the mean size of trained weights, in which jobs "
    "differ. old: the same for the layer at the round's start. random order: the same for the trained entries, "
    "permuted. step: |new - old| / |trained - old|; cosine: between these; norm: |generated| / |trained|.",
    rows=with_other_guesses,
    orders=ORDERS,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
