"""HeteroFL, SplitMix and FLuID by their own papers' settings beside FedTrans's, which table 2 gives them all.

FedTrans's appendix A.1: "The hyperparameter settings for HeteroFL, SplitMix, and FLuID are the same as those in their
paper." What these are, by their public code, and what is taken where they lack a data set: README.md.
"""

from typing import Any

from evals.fedtrans.arms import DATA_SETS, LARGEST, TABLE2, fedtrans
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

_SGD = {"client_optimizer": "sgd", "client_momentum": 0.9, "client_weight_decay": 5e-4}
# by epochs: the number of steps that settings.py may give (smoke) is taken away
_HETEROFL = {**_SGD, "batch_size": 10, "local_steps": None, "local_epochs": 5}
_SPLITMIX = {
    **_SGD,
    "learning_rate": 0.01,
    "decay_factor": 1.0,
    "batch_size": 32,
    "local_steps": None,
    "local_epochs": 1,
}
_FLUID = {
    "client_momentum": 0.0, "client_weight_decay": 0.0, "decay_factor": 1.0, "local_steps": None, "local_epochs": 1,
    "fluid.rates": "time",
}  # fmt: skip
_ADAM = {"client_optimizer": "adam", "learning_rate": 1e-4, "batch_size": 20, "client_momentum": None}


def own_settings(data: str) -> dict[str, dict[str, Any]]:
    """Keys of each baseline's own clients on one of the paper's data sets, by label."""
    pictures = data == "cifar10"
    return {
        # 0.01 on MNIST, 0.1 on CIFAR-10
        "HeteroFL": {"method": "heterofl", **_HETEROFL, "learning_rate": 0.01 if data == "femnist" else 0.1},
        "SplitMix": {"method": "splitmix", **_SPLITMIX},
        "FLuID": {"method": "fluid", **_FLUID, **(_ADAM if pictures else {"learning_rate": 0.004, "batch_size": 10})},
    }


def arms(data: str) -> list[Arm]:
    """FedTrans, and each baseline by both settings."""
    rows = [fedtrans(data, TABLE2[data].get("FedTrans"))]
    for label, keys in own_settings(data).items():
        shared = {"method": keys["method"], **({"fluid.rates": "time"} if label == "FLuID" else {})}
        rows.append(Arm(f"{label}, FedTrans's settings", {**shared, "model": LARGEST}, data))
        rows.append(Arm(f"{label}, its own", {**keys, "model": LARGEST}, data, TABLE2[data].get(label, {})))
    return rows


EXPERIMENT = Experiment(
    "own_settings",
    "Baselines by FedTrans's settings and by their own",
    [arm for data in DATA_SETS for arm in arms(data)],
    ("accuracy %", "IQR %", "TMACs", "rounds to convergence", "TMACs at convergence", "accuracy at convergence %"),
    plots.bars("accuracy %", "TMACs"),
    note="Epochs instead of steps, other rates and batches: clients do other work in a round, and devices, which train "
    "by epochs, afford other models. Compare costs at convergence.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
