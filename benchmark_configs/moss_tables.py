"""Moss's configurations and those of the distillation systems and pruning baselines that it is measured against: its
three applications, or what stands for them, written to files by make.py."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Data:
    """An application at one size: FedScale's name of its ``kind``, the ``folder`` that ``obtain`` fills, the ``types``
    of devices, largest first, and how many of each; what the server holds; keys of its jobs."""

    title: str
    kind: str
    folder: str
    obtain: str
    types: tuple[str, str, str]
    devices: int
    public: int
    unrelated: str
    keys: Keys = field(default_factory=dict)


PAPER, SMALL = "with the paper's values (sections 4.1 and 4.2)", "for a machine with 2 cores"
# section 4.2.4; momentum is 0.9 where the text says 0.05 (the file says how to have that)
COMMON: Keys = {
    "device_conf_file": "resampled", "use_cuda": False, "overcommitment": 1.0, "filter_less": 0, "rounds": 50,
    "local_epochs": 5, "batch_size": 32, "learning_rate": 0.001, "client_momentum": 0.9, "decay_factor": 1.0,
    "eval_interval": 1, "test_bsz": 512, "record_internals": True,
}  # fmt: skip
_IMPORT, _DIRICHLET = "fedscale dataset import path/to/", "--partition dirichlet --alpha 0.1 --clients"
_IMAGE: Keys = {"sample_shape": "1x32x36"}  # UCI HAR's 9 x 128 as networks for pictures take it
_HAR = f"{_IMPORT}uci_har.npz --data-set uci_har --client c --test local -o data/har_local"
_FSDD, _FSDD32 = (
    f"{_IMPORT}fsdd_600.npz --data-set {kind} --x audio --y label -o data/{kind}" for kind in ("fsdd", "fsdd_mfcc32")
)
_SMALL_TYPES = ("resnet18_speech", "mobilenetv2_thin", "lenet_6k")


def _quick(reference_macs: float) -> Keys:
    """Keys of small files; devices are as slow for their types as for networks of the paper's size (evals/moss)."""
    devices = {"capacity_model": _SMALL_TYPES[-1], "reference_macs": reference_macs}
    return {"rounds": 25, "learning_rate": 0.01, **devices}


DATA: Mapping[str, tuple[str, Data]] = {
    "cifar10": (PAPER, Data(
        "CIFAR-10, 300 devices", "cifar10", "cifar10-moss",
        f"{_IMPORT}cifar-10-batches-bin --data-set cifar10 {_DIRICHLET} 300 --samples-per-client 100 "
        "--test local -o data/cifar10-moss",
        ("resnet18", "mobilenetv2", "lenet_80k"), 300, 100,
        f"{_IMPORT}cifar-100-binary --data-set cifar100 --partition iid --clients 1 -o data/cifar100",
    )),
    "speech": (PAPER, Data(
        "Speech Commands with 12 classes, 300 devices", "speech12_mfcc32", "speech12_mfcc32-moss",
        f"{_IMPORT}speech_commands_v0.02 --data-set speech12_mfcc32 {_DIRICHLET} 300 "
        "--samples-per-client 200 --test local -o data/speech12_mfcc32-moss",
        ("resnet18", "mobilenetv2", "lenet_6k"), 300, 200, _FSDD32,
    )),
    "har": (PAPER, Data(
        "UCI HAR, 30 people, which stands for depth images of gestures", "uci_har", "har_local", _HAR,
        ("resnet18", "mobilenetv2", "lenet_6k"), 30, 50, "", _IMAGE,
    )),
    "cifar10_small": (SMALL, Data(
        "a part of CIFAR-10, 30 devices", "cifar10", "cifar10_10k2k-moss",
        f"{_IMPORT}cifar10_10k2k.npz --data-set cifar10 {_DIRICHLET} 30 --samples-per-client 100 "
        "--test local -o data/cifar10_10k2k-moss",
        _SMALL_TYPES, 30, 100,
        f"{_IMPORT}cifar100_3k600.npz --data-set cifar100 --partition iid --clients 1 -o data/cifar100", _quick(5.3e5),
    )),
    "speech_small": (SMALL, Data(
        "log-mel features of Speech Commands, 12 classes, 30 devices", "google_speech12", "speech12_logmel-moss",
        f"{_IMPORT}speech_commands_logmel.npz --data-set google_speech12 --x logmel --y label --names words "
        f"{_DIRICHLET} 30 --samples-per-client 100 --test local -o data/speech12_logmel-moss",
        _SMALL_TYPES, 30, 100, _FSDD, _quick(1.2e6),
    )),
    "har_small": (SMALL, Data(
        "UCI HAR, 30 people", "uci_har", "har_local", _HAR,
        _SMALL_TYPES, 30, 50, "", {**_quick(6.3e5), **_IMAGE, "local_epochs": 1},
    )),
}  # fmt: skip
# of each method: its name in words, own keys, and those that suit two cores beside. Values of the
# methods' own papers are the defaults; learning rates and batches on the server, and of public samples, are Moss's
BASELINES: Mapping[str, tuple[str, Keys, Keys]] = {
    "fedmd": ("FedMD", {"digest_batch": 32}, {}),
    "feddf": ("FedDF", {"batch_size": 32}, {"steps": 200, "patience": 50}),
    "dsfl": ("DS-FL", {"batch_size": 32}, {}),
    "fedgems": ("FedGEMS", {}, {}),
    "fedet": ("Fed-ET", {"batch_size": 32, "momentum": 0.9}, {"steps": 50}),
}
_SERVER_RATE = ("dsfl", "fedgems", "fedet")  # FedDF's is Adam's


def _ratios(method: str, third: int) -> Keys:
    return {f"{method}.param_ratio": [1.0, 0.4, 0.05], f"{method}.groups": [third] * 3}


# the pruning baselines: title, own keys by the number of devices of each type. 0.63 and 0.22 of the channels are 0.4
# and 0.05 of a ResNet-18's parameters (0.43 and 0.06 of those of the small files' one)
PRUNED: Mapping[str, tuple[str, Callable[[int], Keys]]] = {
    "hermes": ("Hermes", partial(_ratios, "hermes")),
    "tailorfl": ("TailorFL", partial(_ratios, "tailorfl")),
    "fedmask": ("FedMask", partial(_ratios, "fedmask")),
    "fedskel": ("FedSkel", partial(_ratios, "fedskel")),
    "lotteryfl": ("LotteryFL", lambda _: {"lotteryfl.weighted": True}),
    "heterofl": (
        "HeteroFL",
        lambda third: {"heterofl.rates": [1.0, 0.63, 0.22], "heterofl.groups": [third] * 3, "heterofl.weighted": True},
    ),
    "fjord": ("FjORD", lambda third: {"fjord.p": [1.0, 0.63, 0.22], "fjord.groups": [third] * 3}),
}


def job_keys(name: str, method: str, data: Data, own: Keys) -> dict[str, Any]:
    """The job_conf of a file."""
    return {
        "job_name": name,
        "log_path": "./",
        "method": method,
        "data_set": data.kind,
        "data_dir": f"./data/{data.folder}",
        "model": data.types[0],
        "num_participants": data.devices,
        **COMMON,
        **data.keys,
        "public_samples": data.public,
        **own,
    }


def type_keys(method: str, data: Data) -> dict[str, Any]:
    """Who has which type."""
    return {f"{method}.types": list(data.types), f"{method}.groups": [data.devices // 3] * 3}


def _rate(data: Data) -> float:
    """The learning rate of clients and servers."""
    rate: float = {**COMMON, **data.keys}["learning_rate"]
    return rate


def own_keys(method: str, data: Data, says: str) -> dict[str, Any]:
    """A baseline's hyperparameters beside its types."""
    _, own, small = BASELINES[method]
    rate = {"lr": _rate(data)} if method in _SERVER_RATE else {}
    # FedMD's first round has 25 epochs, five times a later one's: fewer where those are fewer
    fewer = data.keys.get("local_epochs")
    first = {"private_epochs": 5 * fewer} if method == "fedmd" and fewer else {}
    keys = {**rate, **own, **first, **({} if says == PAPER else small)}
    return {f"{method}.{key}": value for key, value in keys.items()}


def _top(title: str, name: str, says: str, data: Data, more: list[str]) -> str:
    lines = [f"{title} on {data.title}, {says}.", *_start(name, data)]
    lines.append(f"The server holds {data.public} samples that it takes from the clients' ones.")
    if data.unrelated:
        folder = data.unrelated.rpartition(" ")[2]
        lines += [f"  of another task: {data.unrelated}", f"    --set public_dir={folder}"]
    lines.append("The weakest third of the devices has the type of fewest MACs; num_participants is all of them.")
    return _commented([*lines, *more])


def _pruned_top(title: str, name: str, says: str, dataset: str, data: Data, own: Keys) -> str:
    lines = [f"{title} on {data.title}, as moss_{dataset} has them, {says}.", *_start(name, data)]
    lines.append(f"{data.public} samples go to Moss's server there, and to nobody here: clients' data are the same.")
    ratios = [key for key in own if key.endswith(".param_ratio")]
    if ratios:
        key = ratios[0].replace("param_ratio", "match_params")
        lines.append("Types keep shares of the model's parameters; as many as Moss's types have, instead:")
        lines.append(f"  --set {key}=[{','.join(data.types)}]")
    return _commented(lines)


def _start(name: str, data: Data) -> list[str]:
    return [f"  fedscale driver start {name}", "Data:", f"  {data.obtain}"]


def _commented(lines: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in (*lines, "Written by benchmark_configs/make.py."))


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """By file name: the lines on top and the job_conf."""
    made = {}
    for dataset, (says, data) in DATA.items():
        name = f"moss_{dataset}"
        momentum = "The paper's text says momentum 0.05: --set client_momentum=0.05 --set moss.momentum=0.05"
        own = {**type_keys("moss", data), "moss.lr": _rate(data)}
        made[name] = _top("Moss", name, says, data, [momentum]), job_keys(name, "moss", data, own)
        for method, (title, _, _) in BASELINES.items():
            name = f"{method}_{dataset}"
            own = {**type_keys(method, data), **own_keys(method, data, says)}
            more = ["Data, types, devices and training are those of Moss's file."]
            shown = replace(data, unrelated="") if method == "fedgems" else data  # it needs labels
            made[name] = _top(title, name, says, shown, more), job_keys(name, method, data, own)
        for method, (title, keys) in PRUNED.items():
            name, own = f"{method}_moss_{dataset}", keys(data.devices // 3)
            made[name] = _pruned_top(title, name, says, dataset, data, own), job_keys(name, method, data, own)
    return made
