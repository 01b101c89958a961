"""Figure 10b: slopes averaged in the degree of convergence (claim F15)."""

from evals.fedtrans.arms import reference_arms
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

EXPERIMENT = Experiment(
    "fig10b",
    "Figure 10b: slopes averaged in the degree of convergence",
    [Arm(f"gamma = {x:g}", {"method": "fedtrans", "fedtrans.gamma": x}, x=x) for x in (5, 10, 15, 20, 30)]
    + reference_arms(),
    plot=plots.sweep("gamma"),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
