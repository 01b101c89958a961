"""What FedorAS's paper claims, as the orders that evals/claims.py looks for in this folder's results.

"No worse" (A5) is within ``orders.EQUAL``; "a few rounds" (A7) are four, beside the paper's 0.8. FedorAS does not fall
behind (A9) where its highest tier is above that of random architectures, which fall behind those that all may train.
A1 has two rows: 80 rounds of the supernet, which small scale has now, and 30, which it had first.
"""

from evals.fedoras import longer
from evals.fedoras.ablation import FEDAVG, WHOLE
from evals.fedoras.arms import ACCURACY, FEDORAS, PEAK, SPREAD, WORST
from evals.fedoras.fig1 import AWARE, UNAWARE, label
from evals.fedoras.fig6 import REQUIRED, TAU, rounds_label
from evals.fedoras.table5 import ABOVE_FJORD
from evals.fedoras.table6 import GAIN, above, beside_a_better_linear_model, gain_label
from evals.fedoras.tiers import RANDOM, SUPERNET, TIER
from evals.paper.ledger import Claim
from evals.paper.orders import EQUAL, Order

_SHORT = longer.TIMES[0]  # 30 rounds of the supernet instead of 80
CLAIMS: dict[str, Claim] = {
    "A1": Claim("Supernet weights beat random ones in every tier (alpha 0.1, 80 rounds)",
                "table6", above("cifar10-h0.1")),
    "A1, 30 rounds": Claim(
        "Supernet weights beat random ones in every tier (alpha 0.1, 30 rounds)", "longer",
        [Order(TIER.format(tier), longer.label(_SHORT, SUPERNET), longer.label(_SHORT, RANDOM))
         for tier in range(1, 5)]),
    "A2": Claim("The gain grows with heterogeneity and with the tier", "table6", [
        *(Order(GAIN, gain_label(tier, more), gain_label(tier, less))
          for tier in range(1, 5) for more, less in (("0.1", "1"), ("1", "1000"))),
        *(Order(GAIN, gain_label(4, alpha), gain_label(1, alpha)) for alpha in ("1000", "1", "0.1")),
    ], beside_a_better_linear_model, across=True),
    "A3": Claim("FedorAS is above FjORD at every tier", "table5", ABOVE_FJORD),
    "A4": Claim("OPA is above plain FedAvg", "ablation", [Order(ACCURACY, FEDORAS, FEDAVG)]),
    "A5": Claim("Half of the subspace is no worse than all of it", "ablation",
                [Order(ACCURACY, FEDORAS, WHOLE, slack=EQUAL)]),
    "A6": Claim("Supernet weights lessen the spread over clients and lift the worst client",
                "table7", [Order(SPREAD, RANDOM, FEDORAS), Order(WORST, FEDORAS, RANDOM)]),
    "A7": Claim("After few rounds, federated search ranks as central search (tau above 0.8)", "fig6",
                [Order(TAU, rounds_label(4), REQUIRED)]),
    "A8": Claim("FedorAS needs less memory than FedNAS (equal batches); better at alpha 0.1", "table3",
                [Order(PEAK, "FedNAS", FEDORAS), Order(ACCURACY, FEDORAS, "FedNAS", data="cifar10-h0.1")]),
    "A9": Claim("Large models that few can train fall behind, FedorAS's do not", "fig1",
                [Order(ACCURACY, label(UNAWARE, 4), label(AWARE, 4)),
                 Order(ACCURACY, label(FEDORAS, 4), label(AWARE, 4))]),
}  # fmt: skip
