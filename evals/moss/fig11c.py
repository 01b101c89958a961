"""Figure 11c: share of the public samples that the server uses (claim M12)."""

from itertools import pairwise

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, MOSS, ROUNDS, more_accurate
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order

_SHARES = {"25 %": (25.0, {"public_fraction": 0.25}), "50 %": (50.0, {"public_fraction": 0.5}), MOSS: (100.0, {})}
_PAPER = {"25 %": {ACCURACY: 76.6, ROUNDS: 10}, "50 %": {ACCURACY: 78.9, ROUNDS: 9}, MOSS: {ACCURACY: 79.8, ROUNDS: 8}}
BETTER = [more_accurate(more, less) for less, more in pairwise(_SHARES)]
EXPERIMENT = Experiment(
    "fig11c",
    "Figure 11c: size of the public data",
    [
        Arm(label, {"method": "moss", **keys}, data, _PAPER[label], x)
        for data in APPLICATIONS
        for label, (x, keys) in _SHARES.items()
    ],
    ALL_COLUMNS,
    plots.sweep("public samples used, %", ACCURACY, ROUNDS),
    note="The row Moss has all public samples. The paper's figures are means over the three applications. What is not "
    "used is nobody's: devices train on the same samples in all rows.",
    rows=by_type,
    orders=[*BETTER, Order(ROUNDS, "25 %", MOSS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
