"""Rows of evals/claims.md from the results of this folder's scripts: see evals/paper/ledger.py for the rule.

    python -m evals.fedoras.ledger [--results DIR] [--scale small]

"No worse" (A5) is read as less than two points worse, with every seed; "a few rounds" (A7: four) as the paper's 0.8.
FedorAS does not fall behind (A9) where its highest tier is above that of random architectures, which fall behind those
that all may train.
"""

from evals.fedoras.ablation import FEDAVG, WHOLE
from evals.fedoras.arms import ACCURACY, FEDORAS, NOISE, PEAK, SPREAD, WORST, points
from evals.fedoras.fig1 import AWARE, UNAWARE, label
from evals.fedoras.fig6 import REQUIRED, TAU, rounds_label
from evals.fedoras.settings import PAPER
from evals.fedoras.table5 import ABOVE_FJORD
from evals.fedoras.table6 import GAIN, above, gain_label
from evals.fedoras.tiers import RANDOM
from evals.paper.ledger import main
from evals.paper.orders import Order

CLAIMS: dict[str, tuple[str, list[Order]]] = {
    "A1": ("table6", above("cifar10-h0.1")),
    "A2": ("table6", [
        *(points(GAIN, gain_label(tier, more), gain_label(tier, less))
          for tier in range(1, 5) for more, less in (("0.1", "1"), ("1", "1000"))),
        *(points(GAIN, gain_label(4, alpha), gain_label(1, alpha)) for alpha in ("1000", "1", "0.1")),
    ]),
    "A3": ("table5", ABOVE_FJORD),
    "A4": ("ablation", [points(ACCURACY, FEDORAS, FEDAVG)]),
    "A5": ("ablation", [Order(ACCURACY, FEDORAS, WHOLE, slack=NOISE)]),
    "A6": ("table7", [points(SPREAD, RANDOM, FEDORAS), points(WORST, FEDORAS, RANDOM)]),
    "A7": ("fig6", [Order(TAU, rounds_label(4), REQUIRED)]),
    "A8": ("table3", [Order(PEAK, "FedNAS", FEDORAS), points(ACCURACY, FEDORAS, "FedNAS", data="cifar10-h0.1")]),
    "A9": ("fig1", [points(ACCURACY, label(UNAWARE, 4), label(AWARE, 4)),
                    points(ACCURACY, label(FEDORAS, 4), label(AWARE, 4))]),
}  # fmt: skip

if __name__ == "__main__":
    main(CLAIMS, PAPER.folder / "results", __doc__)
