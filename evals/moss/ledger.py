"""Rows of evals/claims.md from the results of this folder's scripts: see evals/paper/ledger.py for the rule.

    python -m evals.moss.ledger [--results DIR] [--scale small]

Accuracies are means over the evaluations in the last quarter of the rounds. "Small models gain most" (M3) compares what
Moss gains over the mean baseline; "same accuracy" (M8) is within a point in both directions, "no better" (M9) within a
point. "Still works" (M10) is that Moss is above all baselines that can do without related public data. Time and
energy (M5) are modelled, and the server's time of M8 was measured.
"""

from evals.moss.arms import ACCURACY, DISTILLING, ENERGY, MOSS, PRUNING, ROUNDS, SECONDS, TRANSMISSION, fewest
from evals.moss.fig7 import DEARER, SAME
from evals.moss.fig8 import ENTROPY, LOCATION, SQUARES, TWO
from evals.moss.fig9 import BETTER as WITH_FILE
from evals.moss.fig10 import RIVALS
from evals.moss.fig11a import WORSE
from evals.moss.fig11b import BETTER as WITH_DEVICES
from evals.moss.fig11c import BETTER as WITH_SAMPLES
from evals.moss.settings import PAPER
from evals.moss.table3 import GAIN, gain_label
from evals.paper.ledger import Claims, main
from evals.paper.orders import Order

_LOGITS = ("FedMD", "DS-FL", "FedGEMS")  # send no models: the three of the paper's twelve that transmit less
CLAIMS: Claims = {
    "M1": ("table3", [Order(ACCURACY, MOSS, label) for label in DISTILLING]),
    "M2": ("table3", [Order(ACCURACY, MOSS, label) for label in PRUNING]),
    "M3": ("table3", [Order(GAIN, gain_label("small"), gain_label(kind)) for kind in ("medium", "large")]),
    "M4": ("fig4", fewest(ROUNDS)),
    "M5": ("fig5", fewest(SECONDS)),
    "M5, energy": ("fig6", fewest(ENERGY)),
    "M6": ("table4", [order for order in fewest(TRANSMISSION) if order.more not in _LOGITS]),
    "M7": ("fig9", WITH_FILE),
    "M8": ("fig7", [*SAME, *DEARER]),
    "M9": ("fig8", [*(Order(ACCURACY, MOSS, label) for label in (LOCATION, ENTROPY, SQUARES)),
                    Order(ACCURACY, MOSS, TWO, slack=1.0)]),
    "M10": ("fig10", [Order(ACCURACY, MOSS, label) for label in RIVALS]),
    "M11": ("fig11a", WORSE),
    "M12": ("fig11b", WITH_DEVICES),
    "M12, public data": ("fig11c", WITH_SAMPLES),
}  # fmt: skip

if __name__ == "__main__":
    main(CLAIMS, PAPER.folder / "results", __doc__)
