"""Table 6: time that a client needs for its share of a round (claim F13)."""

from evals.fedtrans.arms import LARGEST, MIDDLE, anchors, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

EXPERIMENT = Experiment(
    "table6",
    "Table 6: round completion time",
    [
        fedtrans(paper={"completion s": 134.5, "completion std s": 237.1}),
        Arm("FedAvg, largest, capacities ignored", {"method": "fedavg", "model": LARGEST},
            paper={"completion s": 226.3, "completion std s": 325.6}),
        Arm("FedAvg, middle model", {"method": "fedavg", "model": MIDDLE}),
        *anchors()[:1],
    ],
    ("completion s", "completion std s", "accuracy %", "models"),
    plots.bars("completion s", "completion std s"),
    note="The paper does not say which model FedAvg trains; the published figures stand beside the largest.",
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
