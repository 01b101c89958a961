"""Figure 8: how uneven the data are, by Dirichlet's alpha (claim H10)."""

from dataclasses import replace

from evals.hypemefed.arms import ABOVE_RIVALS, BETWEEN, COLUMNS, GLOBAL, suite
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

PARTITIONS = ("h0.1", "h0.5", "h1", "iid")
EXPERIMENT = Experiment(
    "fig8",
    "Figure 8: accuracy by heterogeneity of the data",
    [
        replace(arm, data=f"{data}-{how}")
        for data in ("unimib", "svhn", "stl10")
        for how in PARTITIONS
        for arm in suite(data)
    ],
    COLUMNS,
    plots.grouped(GLOBAL),
    note="h0.1 is Dirichlet's alpha of 0.1, iid the paper's 10,000. UCI HAR's windows are dealt anew here, without "
    "regard to persons.",
    orders=[*BETWEEN, *ABOVE_RIVALS],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
