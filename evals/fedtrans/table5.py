"""Table 5: what FedTrans costs beside the training (claim F19)."""

from evals.fedtrans.arms import anchors, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "table5",
    "Table 5: overhead",
    [fedtrans(), *anchors()],
    ("rounds", "training losses", "coordinator ms / round", "models", "accuracy %", "TMACs"),
    plots.bars("coordinator ms / round"),
    note="The paper: client computation 0; client communication r p c, one training loss per update (r rounds, p "
    "participants; `training losses`, counted: FedAvg's updates have it too, as rounds show a loss); coordinator "
    "r (m n + 1) c + |W| c, for utilities, degree of convergence, transformations and soft aggregation, of which the "
    "time is measured.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
