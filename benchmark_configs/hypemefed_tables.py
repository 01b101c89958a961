"""HypeMeFed's configurations and its baselines': data sets and methods, written to files by make.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Data:
    """A data set at one size: FedScale's name of its ``kind``, the ``folder`` that ``obtain`` fills, the ``backbone``
    of its networks (``multi_exit_...`` and so on), clients by level (smallest first), and keys of its jobs."""

    title: str
    kind: str
    folder: str
    obtain: str
    backbone: str
    groups: tuple[int, ...]
    keys: Keys
    baselines: bool = True


@dataclass(frozen=True)
class Method:
    """``own`` keys; which of the backbone's networks it trains (``form``); whether it takes the sizes of groups."""

    title: str
    form: str
    own: Keys = field(default_factory=dict)
    grouped: bool = True
    module: str = ""


PAPER, SMALL = "with the paper's values (section 5.1)", "for a machine with 2 cores"
# section 5.1; weight decay is a tenth of the learning rate (public code), which stays as it is. All methods are tested
# alike: else those that re-estimate BatchNorm's statistics are compared with those that do not
COMMON: Keys = {
    "device_conf_file": "resampled", "use_cuda": False, "overcommitment": 1.0, "filter_less": 0, "rounds": 300,
    "client_optimizer": "adam", "local_epochs": 5, "decay_factor": 1.0, "eval_interval": 10, "test_bsz": 512,
    "bn_statistics": "federated",
}  # fmt: skip


def _keys(participants: int, batch: int, lr: float, **more: Any) -> dict[str, Any]:
    return {"num_participants": participants, "batch_size": batch, "learning_rate": lr,
            "client_weight_decay": round(lr / 10, 8), **more}  # fmt: skip


_IMPORT = "fedscale dataset import path/to/"
_DIRICHLET = "--partition dirichlet --alpha 0.5 --clients"
_FIFTY, _THIRTY = (17, 17, 16), (10, 10, 10)
_HAR = f"{_IMPORT}uci_har.npz --data-set uci_har --client c --test local -o data/har_local"
# what 5.1 does not name has the values of what is like it: its 5.4 and preliminary study tell none
DATA: Mapping[str, tuple[str, Data]] = {
    "svhn": (PAPER, Data("SVHN", "svhn", "svhn-h0.5", f"{_IMPORT}svhn --data-set svhn {_DIRICHLET} 50 --min-samples 50 "
                         "--test local -o data/svhn-h0.5", "vgg_svhn", _FIFTY, _keys(10, 128, 5e-4))),
    "stl10": (PAPER, Data("STL-10", "stl10", "stl10-h0.5", f"{_IMPORT}stl10_binary --data-set stl10 {_DIRICHLET} 50 "
                          "--min-samples 50 --test local -o data/stl10-h0.5", "vgg_stl10", _FIFTY,
                          _keys(10, 32, 5e-4))),
    "unimib": (PAPER, Data("UniMiB SHAR's falls", "unimib_shar", "unimib-h0.5", f"{_IMPORT}UniMiB-SHAR --data-set "
                           f"unimib_shar {_DIRICHLET} 30 --min-samples 24 --test local -o data/unimib-h0.5",
                           "vgg_unimib", _THIRTY, _keys(6, 16, 5e-3))),
    "har": (PAPER, Data("UCI HAR, 30 people", "uci_har", "har_local", _HAR, "vgg_unimib", _THIRTY,
                        _keys(6, 16, 1e-3), baselines=False)),
    "fashionmnist": (PAPER, Data("Fashion-MNIST, ten exits", "FashionMnist", "fashionmnist-h0.5",
                                 f"{_IMPORT}FashionMNIST --data-set FashionMnist {_DIRICHLET} 50 --min-samples 50 "
                                 "--test local -o data/fashionmnist-h0.5", "cnn10", (5,) * 10, _keys(10, 32, 1e-3),
                                 baselines=False)),
    "cifar100": (PAPER, Data("CIFAR-100", "cifar100", "cifar100-h0.5", f"{_IMPORT}cifar-100-binary --data-set cifar100 "
                             f"{_DIRICHLET} 50 --min-samples 50 --test local -o data/cifar100-h0.5", "resnet18", _FIFTY,
                             _keys(10, 32, 1e-3), baselines=False)),
    "har_small": (SMALL, Data("UCI HAR, 30 people", "uci_har", "har_local", _HAR, "vgg_small", _THIRTY,
                              _keys(6, 32, 1e-3, rounds=60, eval_interval=3, sample_shape="9x1x128"))),
    "fashionmnist_small": (SMALL, Data("24,000 pictures of Fashion-MNIST", "FashionMnist", "fashion-h0.5",
                                       f"{_IMPORT}fashionmnist_20k4k.npz --data-set FashionMnist {_DIRICHLET} 50 "
                                       "--min-samples 50 --test local -o data/fashion-h0.5", "vgg_small", _FIFTY,
                                       _keys(10, 32, 1e-3, rounds=40, eval_interval=4))),
    "cifar100_small": (SMALL, Data("3,600 pictures of CIFAR-100", "cifar100", "cifar100_small-h0.5",
                                   f"{_IMPORT}cifar100_3k600.npz --data-set cifar100 {_DIRICHLET} 30 --min-samples 50 "
                                   "--test local -o data/cifar100_small-h0.5", "resnet18_small", _THIRTY,
                                   _keys(6, 16, 1e-3, rounds=40, eval_interval=4), baselines=False)),
}  # fmt: skip
_RATES = [1.0, 0.75, 0.5]
METHODS: Mapping[str, Method] = {
    "hypemefed": Method("HypeMeFed", "multi", module="hypemefed"),
    "fedavg_l": Method("FedAvg-L: the whole network for all clients, whatever they afford", "single", grouped=False,
                       module="fedavg"),
    "fedavg_s": Method("FedAvg-S: the network up to its first exit for all clients", "first", grouped=False,
                       module="fedavg"),
    "heterofl": Method("HeteroFL", "single", {"rates": _RATES, "weighted": True}, module="heterofl"),
    "fedrolex": Method("FedRolex", "single", {"rates": _RATES, "weighted": True}, module="fedrolex"),
    "scalefl": Method("ScaleFL without self-distillation", "multi",
                      {"widths": [0.7, 0.75, 1.0], "exits": [1, 2, 3], "weighted": True}, module="scalefl"),
    "depthfl": Method("DepthFL", "multi", {"weighted": True}, module="depthfl"),
    "lotteryfl": Method("LotteryFL", "single", {"weighted": True}, grouped=False, module="lotteryfl"),
}  # fmt: skip


def job_keys(name: str, method: str, data: Data) -> dict[str, Any]:
    """The job_conf of a file."""
    how = METHODS[method]
    own = {**({"groups": list(data.groups)} if how.grouped else {}), **how.own}
    return {
        "job_name": name,
        "log_path": "./",
        "method": how.module,
        "data_set": data.kind,
        "data_dir": f"./data/{data.folder}",
        "model": f"{how.form}_exit_{data.backbone}",
        **({} if how.form == "first" else {"capacity_model": f"first_exit_{data.backbone}"}),
        **COMMON,
        **data.keys,
        **{f"{how.module}.{key}": value for key, value in own.items()},
    }


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """By file name: the lines on top and the job_conf of each method on each of its data sets."""
    made = {}
    for method, how in METHODS.items():
        for dataset, (says, data) in DATA.items():
            if method == "hypemefed" or data.baselines:
                name = f"{method}_{dataset}"
                lines = [f"{how.title}, on {data.title}, {says}.", f"  fedscale driver start {name}",
                         "Data:", f"  {data.obtain}"]  # fmt: skip
                if how.grouped:
                    lines.append("Clients by level, smallest first: the weakest devices train the smallest level.")
                made[name] = ("".join(f"# {line}\n" for line in [*lines, "Written by benchmark_configs/make.py."]),
                              job_keys(name, method, data))  # fmt: skip
    return made
