"""Figure 11: deepening degree (claim F16)."""

from evals.fedtrans.arms import reference_arms, swept
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig11b",
    "Figure 11: deepening degree",
    swept("deepen_count", (1, 2, 3), "deepening degree") + reference_arms(),
    plot=plots.sweep("deepening degree"),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
