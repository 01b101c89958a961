"""Figure 10a: threshold of the degree of convergence (claim F14)."""

from evals.fedtrans.arms import reference_arms
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

EXPERIMENT = Experiment(
    "fig10a",
    "Figure 10a: threshold of the degree of convergence",
    [
        Arm(f"beta = {x:g}", {"method": "fedtrans", "fedtrans.beta": x}, x=x)
        for x in (0.001, 0.003, 0.005, 0.01, 0.02, 0.03, 0.1)
    ]
    + reference_arms(),
    plot=plots.sweep("beta", log=True),
    note="Short runs need a larger beta than the paper's 0.003: their loss falls faster per round.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
