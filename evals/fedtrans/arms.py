"""Arms that several tables and figures share."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.paper.experiment import Arm
from evals.paper.job_keys import ModelOf
from fedscale_ext.methods.fedtrans.params import FedTransParams
from fedscale_ext.report.compare import published

FEDTRANS = "FedTrans"
BY_TIME = "FLuID, stragglers by time"
MASKED = "HeteroFL, masked tests"
LARGEST = ModelOf(FEDTRANS)  # the paper's protocol: baselines get FedTrans's largest model
MIDDLE = ModelOf(FEDTRANS, "middle")

Figures = Mapping[str, Mapping[str, float]]


def fedtrans(data: str = "femnist", paper: Mapping[str, float] | None = None, **keys: Any) -> Arm:
    """FedTrans with its defaults, and ``keys`` of its own."""
    method_keys = {f"fedtrans.{name}": value for name, value in keys.items()}
    return Arm(FEDTRANS, {"method": "fedtrans", **method_keys}, data, paper or {})


def swept(name: str, values: Sequence[float], label: str) -> list[Arm]:
    """FedTrans with each value of one hyperparameter that settings.py leaves alone; at its default the job is the other
    tables' FedTrans, which is not trained again."""
    default = getattr(FedTransParams, name)
    method_keys = [{} if x == default else {f"fedtrans.{name}": x} for x in values]
    return [
        Arm(f"{label} = {x:g}", {"method": "fedtrans", **keys}, x=x)
        for x, keys in zip(values, method_keys, strict=True)
    ]


def anchors(data: str = "femnist") -> list[Arm]:
    """FedAvg on the base model, and on FedTrans's largest with capacities ignored: what each claim stands beside."""
    return [
        Arm("FedAvg, base model", {"method": "fedavg"}, data),
        Arm("FedAvg, largest, capacities ignored", {"method": "fedavg", "model": LARGEST}, data),
    ]


def reference_arms() -> list[Arm]:
    """References of a sweep: FedTrans as the other tables have it, and FedAvg, which also trains its largest model."""
    return [fedtrans(), *anchors()]


def suite(data: str, paper: Figures) -> list[Arm]:
    """Table 2's methods on one data set, with FedAvg beside them."""
    baselines = [
        Arm(label, {"method": method, "model": LARGEST}, data, paper.get(label, {}))
        for label, method in (("FLuID", "fluid"), ("HeteroFL", "heterofl"), ("SplitMix", "splitmix"))
    ]
    # FLuID's own rule, whatever clients afford: with the paper's protocol few train the whole model, and show what is
    # invariant
    by_time = Arm(BY_TIME, {"method": "fluid", "model": LARGEST, "fluid.rates": "time"}, data)
    # its public code tests clients so; the column "unmasked %" has the same models without
    masked = Arm(MASKED, {"method": "heterofl", "model": LARGEST, "heterofl.mask_test": True}, data)
    return [fedtrans(data, paper.get(FEDTRANS)), *baselines, *anchors(data), by_time, masked]


# What the paper counts as cost and network is open: compare ratios.
_COLUMNS = ("accuracy %", "IQR %", "TMACs", "mean model MB", "network MB / round")
_LABELS = {"fedtrans": FEDTRANS, "fluid": "FLuID", "heterofl": "HeteroFL", "splitmix": "SplitMix"}
TABLE2 = {
    data: {
        _LABELS[method]: dict(zip(_COLUMNS, (accuracy, iqr, 1000 * pmacs, storage, network), strict=True))
        for method, (accuracy, iqr, pmacs, storage, network) in rows.items()
    }
    for data, rows in published.TABLE2.items()
}
TABLE2_COLUMNS = ("accuracy %", "unmasked %", "IQR %", "worst %", "TMACs", "rounds to convergence",
                  "TMACs at convergence", "accuracy at convergence %", "TMACs forward", "suite MB", "mean model MB",
                  "network MB", "network MB / round", "models", "participants / model")  # fmt: skip
DATA_SETS = ("cifar10", "femnist", "speech", "openimage")


def all_suites() -> list[Arm]:
    """Table 2 whole: Figures 2, 6 and 7 show the same runs."""
    return [arm for data in DATA_SETS for arm in suite(data, TABLE2[data])]
