"""The rows of the benchmark: which method, on which of a task's networks, with which hyperparameters.

Hyperparameters are those of the methods' papers (the package's defaults), but for what this file names: sizes that
stand for the five kinds of devices, and numbers of rounds and steps that a paper chose for far longer jobs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evals.benchmark.devices import KINDS
from evals.benchmark.networks import EXITS
from evals.benchmark.tasks import Task

RATES = [1.0, 0.71, 0.5, 0.35, 0.25]
"""Shares of the large network's channels by kind of device, strongest first; each has half the MACs of the last."""

_CHANNELS = {"model": "$large"}
_EXITS = {"model": "$exits"}
_TYPED = {"model": "$large", "$.types": "$types", "$.groups": "$groups"}
_SIZES = {"$.param_ratio": RATES[::-1], "$.groups": "$groups"}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        method: Name of the method.
        family: Heading under which the table has it.
        keys: job_conf keys; ``$.name`` is the method's own key. ``$large``, ``$exits``, ... are files of the task's
            networks, ``$types`` those of its types, ``$groups`` the clients of each kind of device.
        rate_keys: keys that the learning rate is the value of, beside ``learning_rate``.
        reference: a floor or ceiling, which has no rank.
    """

    method: str
    family: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    rate_keys: tuple[str, ...] = ()
    reference: bool = False

    def job_keys(self, task: Task, folder: Path) -> dict[str, Any]:
        """Return the job_conf keys of the row on a task, whose networks are written into ``folder``."""
        files = task.networks.written(task.shape, task.classes, folder)
        types = [files[f"type{kind}"] for kind in range(1, KINDS + 1)]
        stand_in = {f"${name}": path for name, path in files.items()} | {
            "$types": types,
            "$groups": groups(task.clients),
        }
        keys = {"model": "$small", "capacity_model": "$weakest", **self.keys}
        return {
            key.replace("$.", f"{self.method}."): stand_in.get(value, value) if isinstance(value, str) else value
            for key, value in keys.items()
        }


def groups(clients: int) -> list[int]:
    """Return the number of clients of each kind of device, weakest first."""
    return [len(range(kind, clients, KINDS)) for kind in range(KINDS)]


_REFERENCE, _ONE, _WIDTH, _DEPTH = "floors and ceilings", "one model", "width", "depth"
_GROW, _TYPES, _PRUNE = "growing", "types of devices", "pruning"

ROWS = {
    "local only": Row("local", _REFERENCE, reference=True),
    "FedAvg, weakest device's model": Row("fedavg", _REFERENCE, reference=True),
    "FedAvg, largest model for all": Row("fedavg", _REFERENCE, _CHANNELS, reference=True),
    "FedProx": Row("fedprox", _ONE, {"proxy_mu": 0.1}),
    "FedYogi": Row("fedyogi", _ONE, {"yogi_eta": 0.003, "yogi_tau": 1e-8, "yogi_beta": 0.9, "yogi_beta2": 0.99}),
    "FedAdam": Row("fedadam", _ONE),
    "q-FedAvg": Row("qfedavg", _ONE),
    "HeteroFL": Row("heterofl", _WIDTH, {**_CHANNELS, "$.rates": RATES}),
    "FedRolex": Row("fedrolex", _WIDTH, {**_CHANNELS, "$.rates": RATES}),
    "FjORD": Row("fjord", _WIDTH, {**_CHANNELS, "$.p": RATES[::-1]}),
    "FLuID": Row("fluid", _WIDTH, {**_CHANNELS, "$.p": RATES[1:]}),
    "SplitMix": Row("splitmix", _WIDTH, {"model": "$atoms"}),
    "DepthFL": Row("depthfl", _DEPTH, _EXITS),
    "ScaleFL": Row("scalefl", _DEPTH, {**_EXITS, "$.exits": list(range(1, EXITS + 1)), "$.widths": [1.0] * EXITS}),
    "HypeMeFed": Row("hypemefed", _DEPTH, _EXITS),
    "FedTrans": Row("fedtrans", _GROW, {"$.gamma": 5, "$.delta": 10, "$.beta": 0.02}),
    "Hermes": Row("hermes", _PRUNE, {**_CHANNELS, **_SIZES}),
    "TailorFL": Row("tailorfl", _PRUNE, {**_CHANNELS, **_SIZES}),
    "FedMask": Row("fedmask", _PRUNE, {**_CHANNELS, **_SIZES}),
    "FedSkel": Row("fedskel", _PRUNE, {**_CHANNELS, **_SIZES}),
    "LotteryFL": Row("lotteryfl", _PRUNE, {**_CHANNELS, "$.weighted": True}),
    "ZeroFL": Row("zerofl", _PRUNE, _CHANNELS),
    "Moss": Row("moss", _TYPES, _TYPED, ("moss.lr",)),
    "FedMD": Row("fedmd", _TYPES, {**_TYPED, "$.digest_batch": 32, "$.private_epochs": 5}),
    "FedDF": Row("feddf", _TYPES, {**_TYPED, "$.steps": 50, "$.patience": 25, "$.batch_size": 32}),
    "DS-FL": Row("dsfl", _TYPES, {**_TYPED, "$.batch_size": 32}, ("dsfl.lr",)),
    "FedGEMS": Row("fedgems", _TYPES, _TYPED, ("fedgems.lr",)),
    "Fed-ET": Row("fedet", _TYPES, {**_TYPED, "$.steps": 50, "$.batch_size": 32}, ("fedet.lr",)),
}
