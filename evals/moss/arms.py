"""Arms that several tables and figures share. Equal keys make equal jobs, which are run once."""

from collections.abc import Iterable, Mapping
from typing import Any

from evals.moss.published import figures
from evals.paper.device_types import AFTER, BEFORE, MEAN, columns
from evals.paper.experiment import Arm
from evals.paper.orders import EQUAL, Order

MOSS = "Moss"
LOCAL = "local training alone"
BY_TYPE = "FedAvg by type"
APPLICATIONS = ("cifar10", "speech", "har")
ACCURACY, ROUNDS, TRANSMISSION, SECONDS, ENERGY = (f"{MEAN} {what}" for what in ("%", "rounds", "MB", "s", "J"))
GLOBAL, PERSONALISED = f"{MEAN} global %", f"{MEAN} personalised %"
AROUND = (*columns(BEFORE), *columns(AFTER))
ALL_COLUMNS = (*columns("%"), *columns("global %"), *columns("rounds"), TRANSMISSION, SECONDS, ENERGY)

SHARES, _RATES = [1.0, 0.4, 0.05], [1.0, 0.63, 0.22]  # of a ResNet-18's parameters, and the channels that make them
PRUNING: Mapping[str, Mapping[str, Any]] = {
    "Hermes": {"method": "hermes", "hermes.param_ratio": SHARES},
    "TailorFL": {"method": "tailorfl", "tailorfl.param_ratio": SHARES},
    "FedMask": {"method": "fedmask", "fedmask.param_ratio": SHARES},
    "LotteryFL": {"method": "lotteryfl", "lotteryfl.weighted": True},
    "FedSkel": {"method": "fedskel", "fedskel.param_ratio": SHARES},
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
_MOMENTA = ("client_momentum", "moss.momentum", "fedgems.momentum", "fedet.momentum")
LITERAL: Mapping[str, Any] = dict.fromkeys(_MOMENTA, 0.05)
TEXT_RATES: Mapping[str, Any] = {**LITERAL, **dict.fromkeys(("learning_rate", "moss.lr"), 1e-3)}  # section 4.2.4


def moss(label: str = MOSS, data: str = "cifar10", **keys: Any) -> Arm:
    """Moss with its defaults, and ``keys`` of its own."""
    method_keys = {f"moss.{name}": value for name, value in keys.items()}
    return Arm(label, {"method": "moss", **method_keys}, data, figures(data, label))


def baseline(label: str, data: str = "cifar10") -> Arm:
    """One of the systems that Moss is measured against."""
    return Arm(label, BASELINES[label], data, figures(data, label))


def local(data: str = "cifar10") -> Arm:
    """Each device trains the model of its type on its own samples, and learns of nobody: FedMD without the digest of
    what clients agreed on, and without its beginning on public samples."""
    nothing = {f"fedmd.{name}": 0 for name in ("digest_epochs", "pretrain_epochs", "private_epochs")}
    return Arm(LOCAL, {"method": "fedmd", **nothing}, data)


def fedavg_by_type(data: str = "cifar10") -> Arm:
    """Each type's models are averaged, and the server does nothing else: FedDF without its step."""
    return Arm(BY_TYPE, {"method": "feddf", "feddf.steps": 0}, data)


def suite(data: str) -> list[Arm]:
    """Table 3's systems on one application, and what is reached without any."""
    return [moss(data=data), *(baseline(label, data) for label in BASELINES), local(data), fedavg_by_type(data)]


def all_suites() -> list[Arm]:
    """Tables 3 and 4 and figures 4 to 6 show the same jobs."""
    return [arm for data in APPLICATIONS for arm in suite(data)]


def fewest(column: str) -> list[Order]:
    """Every baseline's figure is above Moss's."""
    return [Order(column, label, MOSS) for label in BASELINES]


def more_accurate(more: str, less: str, column: str = ACCURACY) -> Order:
    """By accuracy on devices' own samples, or by another column."""
    return Order(column, more, less)


def as_accurate(more: str, less: str) -> Order:
    """Or less so by the margin that all papers' claims have."""
    return Order(ACCURACY, more, less, slack=EQUAL)


def most(column: str, labels: Iterable[str] = BASELINES) -> list[Order]:
    """Moss's accuracy is above every one of these."""
    return [more_accurate(MOSS, label, column) for label in labels]
