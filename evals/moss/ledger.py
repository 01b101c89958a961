"""What Moss's paper claims, as the orders that evals/claims.py looks for in this folder's results.

Accuracies are means over the evaluations in the last quarter of the rounds, on devices' own samples, or globally those
of the final models, or "personalised" those after five epochs more on a device's own samples, which alone compares
systems that serve a type's model with those whose devices keep their own in like state. "Small models gain most" (M3)
compares what Moss gains over the mean of those baselines whose devices of a type hold no more than it is to; "same
accuracy" (M8) is within ``orders.EQUAL`` in both directions, "no better" (M9) within it. "Still works" (M10) is that
Moss is above all baselines that can do without related public data. Time and energy (M5) are modelled, and the server's
time of M8 was measured.

What rounds, time, energy and transmission until accuracies settle say (M4 to M7, and of M11): systems are left out that
are no more accurate than local training, on devices' own samples and globally alike, as what has collapsed settles at
once, and those of which a type settles at the last evaluation. Where that is Moss, the claim is open.
"""

from evals.moss.arms import (
    ACCURACY,
    DISTILLING,
    ENERGY,
    GLOBAL,
    MOSS,
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
from evals.moss.fig9 import LESS_ACCURATE
from evals.moss.fig9 import MORE_ROUNDS as MORE_ROUNDS_WITHOUT
from evals.moss.fig10 import STILL_BEST
from evals.moss.fig11a import LITTLE_MORE_ROUNDS, LITTLE_WORSE, MORE_ROUNDS, WORSE
from evals.moss.fig11b import BETTER as WITH_DEVICES
from evals.moss.fig11c import BETTER as WITH_SAMPLES
from evals.moss.rows import says_nothing_of_convergence as unsettled
from evals.moss.table3 import GAIN, gain_label
from evals.paper.ledger import Claim
from evals.paper.orders import Order

_LOGITS = ("FedMD", "DS-FL", "FedGEMS")  # send no models: the three of the paper's twelve that transmit less
_OWN, _ALL, _TUNED = "(devices' own samples)", "(all devices' samples)", "(five more epochs)"
_DISTILL = "Moss is more accurate than five systems that distil"  # arms.DISTILLING
_PRUNE = "Moss is more accurate than seven systems that prune"  # arms.PRUNING
CLAIMS: dict[str, Claim] = {
    "M1": Claim(f"{_DISTILL} {_OWN}", "table3", most(ACCURACY, DISTILLING)),
    "M1, globally": Claim(f"{_DISTILL} {_ALL}", "table3", most(GLOBAL, DISTILLING)),
    "M1, personalised": Claim(f"{_DISTILL} {_TUNED}", "table3", most(PERSONALISED, DISTILLING)),
    "M2": Claim(f"{_PRUNE} {_OWN}", "table3", most(ACCURACY, PRUNING)),
    "M2, globally": Claim(f"{_PRUNE} {_ALL}", "table3", most(GLOBAL, PRUNING)),
    "M2, personalised": Claim(f"{_PRUNE} {_TUNED}", "table3", most(PERSONALISED, PRUNING)),
    "M3": Claim("Small models gain most", "table3",
                [Order(GAIN, gain_label("small"), gain_label(kind)) for kind in ("medium", "large")]),
    "M4": Claim("Moss takes the fewest rounds to settle", "fig4", fewest(ROUNDS), unsettled),
    "M5": Claim("Moss takes the least modelled time to settle", "fig5", fewest(SECONDS), unsettled),
    "M5, energy": Claim("Moss takes the least modelled energy to settle", "fig6", fewest(ENERGY), unsettled),
    "M6": Claim("Moss sends less than nine of the twelve until it settles", "table4",
                [order for order in fewest(TRANSMISSION) if order.more not in _LOGITS], unsettled),
    "M7": Claim("Without FILE, Moss is less accurate", "fig9", LESS_ACCURATE),
    "M7, rounds": Claim("Without FILE, Moss takes more rounds to settle", "fig9", MORE_ROUNDS_WITHOUT, unsettled),
    "M8": Claim("Without PROM, Moss is as accurate, and the server takes longer", "fig7", [*SAME, *DEARER]),
    "M9": Claim("WIRE's loss beats three simpler ones; a second meta-layer adds nothing", "fig8",
                [*(more_accurate(MOSS, label) for label in (LOCATION, ENTROPY, SQUARES)), as_accurate(MOSS, TWO)]),
    "M10": Claim("Public data of another task still serve", "fig10", STILL_BEST),
    "M11": Claim("A smaller epsilon costs accuracy", "fig11a", WORSE),
    "M11, rounds": Claim("A smaller epsilon costs rounds", "fig11a", MORE_ROUNDS, unsettled),
    "M11, less noise": Claim("More noise costs accuracy, with less noise than the paper's", "fig11a", LITTLE_WORSE),
    "M11, less noise, rounds": Claim("More noise costs rounds, with less noise than the paper's", "fig11a",
                                     LITTLE_MORE_ROUNDS, unsettled),
    "M12": Claim("More participants help", "fig11b", WITH_DEVICES),
    "M12, public data": Claim("More public data help", "fig11c", WITH_SAMPLES),
}  # fmt: skip
