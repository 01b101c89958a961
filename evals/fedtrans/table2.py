"""Table 2: FedTrans, FLuID, HeteroFL and SplitMix on four data sets (claims F1 to F6)."""

from evals.fedtrans.arms import TABLE2_COLUMNS, all_suites
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "table2",
    "Table 2: methods for clients with different models",
    all_suites(),
    TABLE2_COLUMNS,
    plots.bars("accuracy %", "TMACs", "network MB / round"),
    note="Baselines are given FedTrans's largest model of the same seed. The paper's storage is set beside the mean "
    "served model, its network beside a round's, its cost beside MACs forward and backward: compare ratios.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
