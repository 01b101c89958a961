"""Figure 2: cost and accuracy of existing solutions (claims F1 to F4)."""

from evals.fedtrans.arms import TABLE2, suite
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig2",
    "Figure 2: cost and accuracy of existing solutions",
    suite("femnist", TABLE2["femnist"]),
    plot=plots.scatter("TMACs"),
    note="FedAvg on the largest model stands for the paper's upper bound; with `--data chars74k-iid` its data are "
    "even, as in the cloud.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
