"""Figure 9: HypeMeFed beside ScaleFL with and without self-distillation (claim H12)."""

from evals.hypemefed.arms import COLUMNS, GLOBAL, HYPEMEFED, baseline, hypemefed
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order

PLAIN, KD, STRONG = "ScaleFL", "ScaleFL, self-distillation", "ScaleFL, self-distillation, gamma 1"
_KD = {"scalefl.self_kd": True}
EXPERIMENT = Experiment(
    "fig9",
    "Figure 9: convergence of HypeMeFed and ScaleFL",
    [
        arm
        for data in ("unimib-h0.1", "unimib-h0.5", "svhn-h0.1", "svhn-h0.5", "stl10-h0.1", "stl10-h0.5")
        for arm in (
            hypemefed(data=data),
            baseline(PLAIN, data),
            Arm(KD, {**baseline(PLAIN).keys, **_KD}, data),
            Arm(STRONG, {**baseline(PLAIN).keys, **_KD, "scalefl.gamma": 1.0}, data),
        )
    ],
    COLUMNS,
    plots.by_round,
    note="Self-distillation begins after a quarter of the rounds. Its weight gamma is 0.05 in the public code's only "
    "example. The paper does not name it, so 1 was tried, too.",
    orders=[Order(GLOBAL, PLAIN, KD), Order(GLOBAL, PLAIN, STRONG), Order(GLOBAL, HYPEMEFED, PLAIN)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
