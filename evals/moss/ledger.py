"""Rows of evals/claims.md from the results of this folder's scripts: see evals/paper/ledger.py for the rule.

    python -m evals.moss.ledger [--results DIR] [--scale small]

Accuracies are means over the evaluations in the last quarter of the rounds, on devices' own samples, or globally those
of the final models, or "personalised" those after five epochs more on a device's own samples, which alone compares
systems that serve a type's model with those whose devices keep their own in like state. They decide nothing within
three points. "Small models gain most" (M3) compares what Moss gains over the mean of those baselines whose devices of a
type hold no more than it is to; "same accuracy" (M8) is within three points in both directions, "no better" (M9) within
three. "Still works" (M10) is that Moss is above all baselines that can do without related public data. Time and energy
(M5) are modelled, and the server's time of M8 was measured.

What rounds, time, energy and transmission until accuracies settle say (M4 to M6, and of M11): systems are left out that
are no more accurate than local training, on devices' own samples and globally alike, as what has collapsed settles at
once, and those of which a type settles at the last evaluation. Where that is Moss, nothing is decidable.
"""

from evals.moss.arms import (
    ACCURACY,
    DISTILLING,
    ENERGY,
    GLOBAL,
    MOSS,
    NOISE,
    PERSONALISED,
    PRUNING,
    ROUNDS,
    SECONDS,
    TRANSMISSION,
    as_accurate,
    fewest,
    more_accurate,
    most,
)
from evals.moss.fig7 import DEARER, SAME
from evals.moss.fig8 import ENTROPY, LOCATION, SQUARES, TWO
from evals.moss.fig9 import BETTER as WITH_FILE
from evals.moss.fig10 import STILL_BEST
from evals.moss.fig11a import LITTLE_MORE_ROUNDS, LITTLE_WORSE, MORE_ROUNDS, WORSE
from evals.moss.fig11b import BETTER as WITH_DEVICES
from evals.moss.fig11c import BETTER as WITH_SAMPLES
from evals.moss.rows import says_nothing_of_convergence
from evals.moss.settings import PAPER
from evals.moss.table3 import GAIN, gain_label
from evals.paper.ledger import Claims, main
from evals.paper.orders import Order

_LOGITS = ("FedMD", "DS-FL", "FedGEMS")  # send no models: the three of the paper's twelve that transmit less
CLAIMS: Claims = {
    "M1": ("table3", most(ACCURACY, DISTILLING)),
    "M1, globally": ("table3", most(GLOBAL, DISTILLING)),
    "M1, personalised": ("table3", most(PERSONALISED, DISTILLING)),
    "M2": ("table3", most(ACCURACY, PRUNING)),
    "M2, globally": ("table3", most(GLOBAL, PRUNING)),
    "M2, personalised": ("table3", most(PERSONALISED, PRUNING)),
    "M3": ("table3", [Order(GAIN, gain_label("small"), gain_label(kind), noise=NOISE) for kind in ("medium", "large")]),
    "M4": ("fig4", fewest(ROUNDS)),
    "M5": ("fig5", fewest(SECONDS)),
    "M5, energy": ("fig6", fewest(ENERGY)),
    "M6": ("table4", [order for order in fewest(TRANSMISSION) if order.more not in _LOGITS]),
    "M7": ("fig9", WITH_FILE),
    "M8": ("fig7", [*SAME, *DEARER]),
    "M9": ("fig8", [*(more_accurate(MOSS, label) for label in (LOCATION, ENTROPY, SQUARES)), as_accurate(MOSS, TWO)]),
    "M10": ("fig10", STILL_BEST),
    "M11": ("fig11a", WORSE),
    "M11, rounds": ("fig11a", MORE_ROUNDS),
    "M11, less noise": ("fig11a", LITTLE_WORSE),
    "M11, less noise, rounds": ("fig11a", LITTLE_MORE_ROUNDS),
    "M12": ("fig11b", WITH_DEVICES),
    "M12, public data": ("fig11c", WITH_SAMPLES),
}  # fmt: skip
LEAVE_OUT = dict.fromkeys(
    ("M4", "M5", "M5, energy", "M6", "M11, rounds", "M11, less noise, rounds"), says_nothing_of_convergence
)

if __name__ == "__main__":
    main(CLAIMS, PAPER.folder / "results", __doc__, leave_out=LEAVE_OUT)
