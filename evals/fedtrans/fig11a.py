"""Figure 11: widening degree (claim F16)."""

from evals.fedtrans.arms import reference_arms, swept
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig11a",
    "Figure 11: widening degree",
    swept("widen_factor", (1.25, 1.5, 2.0, 2.5, 3.0), "widening degree") + reference_arms(),
    plot=plots.sweep("widening degree"),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
