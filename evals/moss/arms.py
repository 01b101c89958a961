"""Arms that several tables and figures share. Equal keys make equal jobs, which are run once."""

from collections.abc import Mapping
from typing import Any

from evals.moss.published import figures
from evals.paper.device_types import MEAN, columns
from evals.paper.engine import Arm
from evals.paper.orders import Order

MOSS = "Moss"
APPLICATIONS = ("cifar10", "speech", "har")
ACCURACY, ROUNDS, TRANSMISSION, SECONDS, ENERGY = (f"{MEAN} {what}" for what in ("%", "rounds", "MB", "s", "J"))
ALL_COLUMNS = (*columns("%"), *columns("rounds"), TRANSMISSION, SECONDS, ENERGY)

_SHARES, _RATES = [1.0, 0.4, 0.05], [1.0, 0.63, 0.22]  # of parameters, and the channels that make them
PRUNING: Mapping[str, Mapping[str, Any]] = {
    "Hermes": {"method": "hermes", "hermes.param_ratio": _SHARES},
    "TailorFL": {"method": "tailorfl", "tailorfl.param_ratio": _SHARES},
    "FedMask": {"method": "fedmask", "fedmask.param_ratio": _SHARES},
    "LotteryFL": {"method": "lotteryfl", "lotteryfl.weighted": True},
    "FedSkel": {"method": "fedskel", "fedskel.param_ratio": _SHARES},
    "HeteroFL": {"method": "heterofl", "heterofl.rates": _RATES, "heterofl.weighted": True},
    "FjORD": {"method": "fjord", "fjord.p": _RATES},
}
DISTILLING: Mapping[str, Mapping[str, Any]] = {
    "FedMD": {"method": "fedmd"},
    "FedDF": {"method": "feddf"},
    "DS-FL": {"method": "dsfl"},
    "FedGEMS": {"method": "fedgems"},
    "Fed-ET": {"method": "fedet"},
}
BASELINES = {**PRUNING, **DISTILLING}
LITERAL: Mapping[str, Any] = {"client_momentum": 0.05, "moss.momentum": 0.05, "fedgems.momentum": 0.05}


def moss(label: str = MOSS, data: str = "cifar10", **keys: Any) -> Arm:
    """Moss with its defaults, and ``keys`` of its own."""
    own = {f"moss.{name}": value for name, value in keys.items()}
    return Arm(label, {"method": "moss", **own}, data, figures(data, label))


def baseline(label: str, data: str = "cifar10") -> Arm:
    """One of the systems that Moss is measured against."""
    return Arm(label, BASELINES[label], data, figures(data, label))


def suite(data: str) -> list[Arm]:
    """Table 3's systems on one application."""
    return [moss(data=data), *(baseline(label, data) for label in BASELINES)]


def all_suites() -> list[Arm]:
    """Tables 3 and 4 and figures 4 to 6 show the same jobs."""
    return [arm for data in APPLICATIONS for arm in suite(data)]


def fewest(column: str) -> list[Order]:
    """Every baseline's figure is above Moss's."""
    return [Order(column, label, MOSS) for label in BASELINES]


def most(column: str, moss_label: str = MOSS) -> list[Order]:
    """Moss's figure is above every baseline's."""
    return [Order(column, moss_label, label) for label in BASELINES]
