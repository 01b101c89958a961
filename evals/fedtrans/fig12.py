"""Figure 12: threshold of activeness (claim F17)."""

from evals.fedtrans.arms import reference_arms, swept
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig12",
    "Figure 12: threshold of activeness",
    swept("alpha", (0.5, 0.7, 0.8, 0.9, 0.95, 1.0), "alpha") + reference_arms(),
    plot=plots.sweep("alpha"),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
