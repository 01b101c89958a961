"""Figure 8: FedTrans with FedProx and with FedYogi (claim F11)."""

from evals.fedtrans.arms import MIDDLE, anchors, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_PROX = 0.1  # FedScale's proxy_mu
EXPERIMENT = Experiment(
    "fig8",
    "Figure 8: FedTrans with other optimisers",
    [
        fedtrans(),
        Arm("FedTrans + FedProx", {"method": "fedtrans", "fedtrans.prox_mu": _PROX}),
        Arm("FedTrans + FedYogi", {"method": "fedtrans", "fedtrans.server_opt": "yogi"}),
        Arm("FedProx, middle model", {"method": "fedprox", "model": MIDDLE, "fedprox.mu": _PROX}),
        Arm("FedYogi, middle model", {"method": "fedyogi", "model": MIDDLE}),
        *anchors(),
    ],
    plot=plots.bars("accuracy %", "TMACs"),
    note="FedProx and FedYogi train the middle model of FedTrans's, capacities ignored, as in the paper; equal cost is "
    "read off the second panel. FedScale's yogi_eta is 0.003; the FedYogi paper's 0.01 with tau 0.001 is "
    "`--set yogi_eta=0.01 --set yogi_tau=0.001`.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
