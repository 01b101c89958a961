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
    note="The paper's costs, with r rounds and p participants: client computation 0; client communication r p c, one "
    "training loss per update; coordinator r (m n + 1) c + |W| c. `training losses` are counted. FedAvg's updates "
    "have them too, as rounds show a loss. The coordinator's time is that of utilities, degree of convergence, "
    "transformations and soft aggregation.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
