"""Table 4: FedTrans grows a vision transformer (claim F10)."""

from evals.fedtrans.arms import FEDTRANS, LARGEST
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_VIT = {"model": "vit_small"}
EXPERIMENT = Experiment(
    "table4",
    "Table 4: vision transformers",
    [
        Arm(FEDTRANS, {"method": "fedtrans", **_VIT}, paper={"accuracy %": 76.5, "TMACs": 0.38}),
        Arm("FedAvg, largest, capacities ignored", {"method": "fedavg", "model": LARGEST},
            paper={"accuracy %": 71.5, "TMACs": 10.9}),
        Arm("FedAvg, base model", {"method": "fedavg", **_VIT}),
    ],
    plot=plots.bars("accuracy %", "TMACs"),
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
