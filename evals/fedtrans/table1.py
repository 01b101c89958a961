"""Table 1: sharing weights from large to small models (claim F7)."""

from evals.fedtrans.arms import anchors
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

ARMS = [
    Arm(label, {"method": "fedtrans", **keys}, data, {"accuracy %": accuracy})
    for data, off, on in (("femnist", 75.5, 60.9), ("cifar10", 77.5, 54.1))
    for label, keys, accuracy in (("FedTrans", {}, off), ("FedTrans (l2s)", {"fedtrans.l2s": True}, on))
]
ARMS += [arm for data in ("femnist", "cifar10") for arm in anchors(data)]
EXPERIMENT = Experiment(
    "table1",
    "Table 1: sharing from large to small models",
    ARMS,
    plot=plots.bars("accuracy %", "TMACs"),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
