"""Arms that several tables and figures share. Equal keys make equal jobs, which are run once."""

from collections.abc import Mapping
from typing import Any

from evals.hypemefed.settings import BACKBONE
from evals.paper.experiment import Arm
from evals.paper.orders import Order

HYPEMEFED, OFF = "HypeMeFed", "HypeMeFed, hypernetwork off"
SMALLEST, LARGEST = "FedAvg-S", "FedAvg-L"
STALE = "HypeMeFed, old layers"
GLOBAL = "global, late %"  # claims are judged by it: a single evaluation moves by points
OWN_EXIT = "accuracy, late %"  # each client by the deepest exit that it is served, as the public code tests it
COLUMNS = (GLOBAL, OWN_EXIT, "global %", "accuracy %", "TMACs", "network MB", "round s")

Figures = Mapping[str, float]
_WHOLE = {"model": BACKBONE.formatted("single_exit_{}")}
_RATES = [1.0, 0.75, 0.5]
# what the papers of baselines leave open is alike for all: clients weigh by their samples, as in HypeMeFed
_BASELINES: dict[str, dict[str, Any]] = {
    LARGEST: {"method": "fedavg", **_WHOLE},
    SMALLEST: {"method": "fedavg", "model": BACKBONE.formatted("first_exit_{}")},
    "HeteroFL": {"method": "heterofl", **_WHOLE, "heterofl.rates": _RATES, "heterofl.weighted": True},
    "ScaleFL": {"method": "scalefl", "scalefl.widths": [0.7, 0.75, 1.0], "scalefl.exits": [1, 2, 3],
                "scalefl.weighted": True},
    "FedRolex": {"method": "fedrolex", **_WHOLE, "fedrolex.rates": _RATES, "fedrolex.weighted": True},
    "LotteryFL": {"method": "lotteryfl", **_WHOLE, "lotteryfl.weighted": True},
    "DepthFL": {"method": "depthfl", "depthfl.weighted": True},
}  # fmt: skip
RIVALS = ("HeteroFL", "ScaleFL", "FedRolex", "LotteryFL")


def hypemefed(label: str = HYPEMEFED, data: str = "unimib", paper: Figures | None = None, **keys: Any) -> Arm:
    """HypeMeFed with its defaults, and ``keys`` of its own."""
    method_keys = {f"hypemefed.{name}": value for name, value in keys.items()}
    return Arm(label, {"method": "hypemefed", **method_keys}, data, paper or {})


def off(data: str = "unimib") -> Arm:
    """Without hypernetworks: each layer is the mean over those who trained it."""
    return hypemefed(OFF, data, missing="trained")


def stale(data: str = "unimib") -> Arm:
    """What a client lacks stays in the mean as the round began with it: the public code never applies what it
    generates."""
    return hypemefed(STALE, data, missing="stale")


def baseline(label: str, data: str = "unimib", paper: Figures | None = None, **more: Any) -> Arm:
    """One of the baselines; ``more`` of its job_conf keys."""
    return Arm(label, {**_BASELINES[label], **more}, data, paper or {})


def suite(data: str) -> list[Arm]:
    """Figure 7's methods on one data set, with DepthFL beside them."""
    return [
        baseline(LARGEST, data),
        hypemefed(data=data),
        off(data),
        *(baseline(label, data) for label in (SMALLEST, *RIVALS, "DepthFL")),
    ]


def everyone_on(exit: int) -> dict[str, Any]:
    """job_conf keys of HypeMeFed with all clients on one level, whatever they afford."""
    return {
        "method": "hypemefed",
        "hypemefed.groups": None,
        "hypemefed.levels": "fix",
        "hypemefed.shares": [float(number == exit) for number in (1, 2, 3)],
        "hypemefed.missing": "trained",
        "capacity_model": BACKBONE.formatted("multi_exit_{}"),
    }


BETWEEN = [
    Order(column, more, less)
    for column in (GLOBAL, OWN_EXIT)
    for more, less in ((LARGEST, HYPEMEFED), (HYPEMEFED, OFF), (HYPEMEFED, SMALLEST))
]
ABOVE_RIVALS = [Order(GLOBAL, HYPEMEFED, rival) for rival in (*RIVALS, "DepthFL")]
