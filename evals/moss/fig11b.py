"""Figure 11b: share of the devices that take part (claim M12)."""

from itertools import pairwise

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, MOSS, ROUNDS, more_accurate
from evals.moss.rows import by_type
from evals.moss.settings import THIRD, TWO_THIRDS, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order

_SHARES = {"33 %": (33.0, {"num_participants": THIRD}), "67 %": (67.0, {"num_participants": TWO_THIRDS}),
           MOSS: (100.0, {})}  # fmt: skip
_PAPER = {"33 %": {ACCURACY: 75.8, ROUNDS: 13}, "67 %": {ACCURACY: 78.3}, MOSS: {ACCURACY: 79.8, ROUNDS: 8}}
BETTER = [more_accurate(more, less) for less, more in pairwise(_SHARES)]
EXPERIMENT = Experiment(
    "fig11b",
    "Figure 11b: share of devices that take part",
    [
        Arm(label, {"method": "moss", **keys}, data, _PAPER[label], x)
        for data in APPLICATIONS
        for label, (x, keys) in _SHARES.items()
    ],
    ALL_COLUMNS,
    plots.sweep("devices that take part, %", ACCURACY, ROUNDS),
    note="The row Moss has all devices. The paper's figures are means over the three applications, and its accuracy of "
    "100 % differs from Table 3's. Devices that sit out are tested too.",
    rows=by_type,
    orders=[*BETTER, Order(ROUNDS, "33 %", MOSS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
