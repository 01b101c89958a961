"""Table 3: FedTrans without layer selection (l), soft aggregation (s), warm-up (w), decay (d); claims F8, F9."""

from evals.fedtrans.arms import anchors
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_L = {"fedtrans.cell_selection": "random"}
_S = {"fedtrans.sharing": "none"}
_W = {"fedtrans.warmup": "reinit"}
# with sharing off there is no decay to take away: the last row shares undecayed and unweighted
_D = {"fedtrans.sharing": "soft", "fedtrans.decay": "off", "fedtrans.similarity": "one"}
_ROWS = (
    ("FedTrans", {}, 76.42, 968),
    ("FedTrans-l", _L, 73.44, 917),
    ("FedTrans-ls", _L | _S, 65.16, 975),
    ("FedTrans-lsw", _L | _S | _W, 64.40, 2473),
    ("FedTrans-lswd", _L | _W | _D, 55.90, 337),
)
ARMS = [
    Arm(label, {"method": "fedtrans", **keys}, paper={"accuracy %": accuracy, "TMACs": cost})
    for label, keys, accuracy, cost in _ROWS
]
# not in the paper: each part alone
ARMS += [
    Arm("FedTrans-s", {"method": "fedtrans", **_S}),
    Arm("FedTrans-w", {"method": "fedtrans", **_W}),
    Arm("FedTrans-d", {"method": "fedtrans", "fedtrans.decay": "off"}),
]
ARMS += anchors()
EXPERIMENT = Experiment(
    "table3",
    "Table 3: what each part of FedTrans contributes",
    ARMS,
    (
        "accuracy %",
        "TMACs",
        "rounds to convergence",
        "TMACs at convergence",
        "accuracy at convergence %",
        "models",
        "participants / model",
    ),
    plot=plots.bars("accuracy %", "TMACs"),
    note="The rows -s, -w and -d alone are not in the paper.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
