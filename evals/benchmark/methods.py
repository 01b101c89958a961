"""The rows of the benchmark: which method, on which of a task's networks, with which hyperparameters.

Hyperparameters are those of the methods' papers (the package's defaults), but for what this file names: sizes that
stand for the five kinds of devices, and numbers of rounds and steps that a paper chose for far longer jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from evals.benchmark import fitted
from evals.benchmark.devices import KINDS
from evals.benchmark.networks import EXITS
from evals.benchmark.tasks import Task
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.server.method_base.method_traits import About

# What README.md ("What is equal") promises of all rows: clients, public samples, devices, budget, tests, seeds.
EQUAL = frozenset(
    "data_dir data_set data_map_file data_seed sample_shape test_split public_samples public_dir num_participants seed "
    "device_conf_file device_match device_avail_file capacity_rule reference_macs "
    "rounds stop_macs stop_gain eval_macs eval_interval test_on_all".split()
)
YOUR_OWN = "your own"  # the family of a user's rows

_CHANNELS = {"model": "$large"}
_EXITS = {"model": "$exits"}
_TYPED = {"model": "$large", "$.types": "$types", "$.groups": "$groups"}
_LARGEST_TYPE = {**_TYPED, "model": "$largest_type"}  # what the server trains is no smaller than any client's model
_KEPT = {**_TYPED, "$.representation": 32}
_SMALL_SEARCH = {"$.evaluations": 64, "$.population": 32, "$.parents": 16}
_SIZES = {"$.param_ratio": "$shares", "$.groups": "$width_groups"}


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        method: Name of the method.
        keys: job_conf keys; ``$.name`` is the method's own key. Values that begin with $ are what :func:`values` has.
        rate_keys: further keys that are a multiple of the learning rate, with the factor.
        reference: a floor or ceiling, which has no rank.
        pooled: "linear" or the name of a network, which is trained on all clients' samples together instead of a job.
        is_users: somebody's own method, or a shipped one with their settings.
    """

    method: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    rate_keys: Mapping[str, float] = field(default_factory=dict)
    reference: bool = False
    pooled: str = ""
    is_users: bool = False

    @property
    def family(self) -> str:
        """What makes clients' models differ, as the method itself says, or why it is not compared with families."""
        if self.reference or self.is_users:
            return "floors and ceilings" if self.reference else YOUR_OWN
        about: About = vars(method_class(self.method))["about"]
        return about.family

    def job_keys(self, task: Task, folder: Path) -> dict[str, Any]:
        """Return the job_conf keys of the row on a task, whose networks are written into ``folder``."""
        stand_in = values(task, folder)
        shared = {"model": "$small", "capacity_model": "$weakest", **task.stages.get(self.method, {})}
        keys = self._named(shared) | self._named(self.keys)
        if "$space" in keys.values() and task.networks.space is None:
            raise UserError(f"{task.title} has no supernet yet, which {self.method} searches")
        return {key: stand_in.get(value, value) if isinstance(value, str) else value for key, value in keys.items()}

    def _named(self, keys: Mapping[str, Any]) -> dict[str, Any]:
        return {key.replace("$.", f"{self.method}."): value for key, value in keys.items()}


def values(task: Task, folder: Path) -> dict[str, Any]:
    """Return what rows' values that begin with $ stand for on a task, whose networks are written into ``folder``.

    - ``$large``, ``$exits``, ...: files of networks
    - ``$types``: those of the types; ``$largest_type``: the last of them
    - ``$groups``: clients of each kind of device
    - ``$rates``: fitted rates of ``large``, rising; ``$falling_rates``: the same, falling; ``$narrow_rates``: below 1
    - ``$shares``: shares of ``large``'s parameters at these rates; ``$width_groups``: clients of each rate
    - ``$skeletons``: FedSkel's shares of filters; ``$skeleton_groups``: clients of each
    - ``$space``: a supernet; ``$limits``: MMACs that each kind of device affords
    - ``$widths``: rates of ``scaled`` up to each exit
    """
    files = task.networks.written(task.shape, task.classes, folder)
    specs = task.networks.specs(task.shape, task.classes)
    limits, clients = fitted.budgets(specs["weakest"]), groups(task.clients)
    widths = fitted.Fitted.of(fitted.width_rates(specs["large"], limits), clients)
    skeletons = fitted.Fitted.of(fitted.skeleton_shares(specs["large"], limits), clients)
    return {f"${name}": path for name, path in files.items()} | {
        "$types": [files[f"type{kind}"] for kind in range(1, KINDS + 1)],
        "$largest_type": files[f"type{KINDS}"],
        "$groups": clients,
        "$rates": widths.sizes,
        "$falling_rates": widths.sizes[::-1],
        "$narrow_rates": [rate for rate in widths.sizes if rate < 1],
        "$shares": fitted.parameter_shares(specs["large"], widths.sizes),
        "$width_groups": widths.groups,
        "$skeletons": skeletons.sizes,
        "$skeleton_groups": skeletons.groups,
        "$limits": [limit / 1e6 for limit in limits],
        "$widths": fitted.exit_widths(specs["scaled"], limits),
    }


def groups(clients: int) -> list[int]:
    """Return the number of clients of each kind of device, weakest first."""
    return [len(range(kind, clients, KINDS)) for kind in range(KINDS)]


ROWS = {
    "local only": Row("local", reference=True),
    "FedAvg, weakest device's model": Row("fedavg", reference=True),
    "FedAvg, largest model for all": Row("fedavg", _CHANNELS, reference=True),
    "pooled, linear": Row("fedavg", reference=True, pooled="linear"),
    "pooled, largest model": Row("fedavg", _CHANNELS, reference=True, pooled="large"),
    "FedProx": Row("fedprox", {"proxy_mu": 0.1}),
    "FedYogi": Row("fedyogi", {"yogi_eta": 0.003, "yogi_tau": 1e-8, "yogi_beta": 0.9, "yogi_beta2": 0.99}),
    "FedAdam": Row("fedadam"),
    "q-FedAvg": Row("qfedavg", {"$.L": None}),  # the default, named to tell its jobs from earlier ones
    "HeteroFL": Row("heterofl", {**_CHANNELS, "$.rates": "$falling_rates"}),
    "FedRolex": Row("fedrolex", {**_CHANNELS, "$.rates": "$falling_rates"}),
    "FjORD": Row("fjord", {**_CHANNELS, "$.p": "$rates"}),
    "FLuID": Row("fluid", {**_CHANNELS, "$.p": "$narrow_rates"}),
    "SplitMix": Row("splitmix", {"model": "$atoms"}),
    # 30 % of a job of about 100 rounds, as 300 are of the 1000 in its authors' code
    "DepthFL": Row("depthfl", {**_EXITS, "$.ramp_up": 30}),
    # self-distillation is the paper's; the package's default is the public code's
    "ScaleFL": Row(
        "scalefl",
        {"model": "$scaled", "$.exits": list(range(1, EXITS + 1)), "$.widths": "$widths", "$.self_kd": True},
    ),
    "HypeMeFed": Row("hypemefed", _EXITS),
    "FedTrans": Row("fedtrans", {"$.gamma": 5, "$.delta": 10, "$.beta": 0.02}),
    "FedorAS": Row(
        "fedoras",
        {"model": "$space", "$.brackets": "$limits", "$.shares": [1 / KINDS] * KINDS, **_SMALL_SEARCH},
    ),
    "FedNAS": Row("fednas", {"model": "$space"}),
    "SPIDER": Row("spider", {"model": "$space"}),
    "Hermes": Row("hermes", {**_CHANNELS, **_SIZES, "$.start": "type"}),
    "TailorFL": Row("tailorfl", {**_CHANNELS, **_SIZES}),
    "FedMask": Row("fedmask", {**_CHANNELS, **_SIZES}, {"fedmask.lr": 1000}),  # what its clients learn are scores
    "FedSkel": Row("fedskel", {**_CHANNELS, "$.param_ratio": "$skeletons", "$.groups": "$skeleton_groups"}),
    # its authors' step on UCI HAR: by steps of 0.1, clients take part too rarely to reach the target
    "LotteryFL": Row("lotteryfl", {**_CHANNELS, **_SIZES, "$.weighted": True, "$.step": 0.3}),
    "ZeroFL": Row("zerofl", _CHANNELS),
    "Moss": Row("moss", _LARGEST_TYPE),
    "FedMD": Row("fedmd", {**_TYPED, "$.digest_batch": 32, "$.private_epochs": 5}),
    "FedDF": Row("feddf", {**_TYPED, "$.steps": 50, "$.patience": 25, "$.batch_size": 32}),
    "DS-FL": Row("dsfl", {**_LARGEST_TYPE, "$.batch_size": 32}),
    "FedGEMS": Row("fedgems", _LARGEST_TYPE),
    "Fed-ET": Row("fedet", {**_LARGEST_TYPE, "$.steps": 50, "$.batch_size": 32}),
    "FedProto": Row("fedproto", _KEPT),
    "FedTGP": Row("fedtgp", _KEPT, {"fedtgp.lr": 1}),  # one rate for server and clients, as in its authors' code
    "LG-FedAvg": Row("lgfedavg", _KEPT),
    "FedGH": Row("fedgh", _KEPT, {"fedgh.lr": 1}),  # the same
    "FD": Row("fd", _TYPED),
    "FML": Row("fml", {"$.types": "$types", "$.groups": "$groups"}),
    "FedKD": Row("fedkd", {"$.types": "$types", "$.groups": "$groups"}),
    "FedMRL": Row("fedmrl", {"$.types": "$types", "$.groups": "$groups", "$.width": 8}),
    "FedGen": Row("fedgen", _KEPT),
    "FedL2G": Row("fedl2g", {**_KEPT, "$.warm_up": 5}),
}


def row_of(label: str) -> Row:
    """Return the row of a label; a method that has none here is somebody's own."""
    return ROWS.get(label) or Row(label, is_users=True)


def rows_of(method: str, settings: Sequence[str]) -> dict[str, Row]:
    """Return the rows by label that ``fedscale benchmark`` runs for a method.

    They are the table's for one that has some; with settings, or for one that has none, it is a row of one's own. Its
    label names the settings, so that rows of several settings stand beside one another.

    Args:
        method: Name of an installed method.
        settings: Its job_conf keys as KEY=VALUE. Values are YAML, or names that :func:`values` explains.

    Raises:
        UserError: If no such method is installed, or a setting is no KEY=VALUE or of a key that all rows share.

    """
    method_class(method)  # refuses one that is not installed
    known = {label: row for label, row in ROWS.items() if row.method == method and not row.pooled}
    if known and not settings:
        return known
    keys = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting} is no KEY=VALUE")
        if key in EQUAL:
            raise UserError(f"--set {key}: all rows of the benchmark have the same {key}; leave it out")
        if key == "learning_rate":
            raise UserError("--set learning_rate: the benchmark tries learning rates; name yours with --rate")
        try:
            keys[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UserError(f"--set {setting}: {value} is no YAML; put it in quotes") from None
    shown = ", ".join(setting.removeprefix(f"{method}.") for setting in settings)
    return {f"{method} ({shown})" if shown else method: Row(method, keys, is_users=True)}
