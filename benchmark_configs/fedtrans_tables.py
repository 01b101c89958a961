"""FedTrans's configurations and those of its baselines on the paper's four data sets (section 5.1, Table 7), written to
files by make.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Size:
    """``suffix`` of the files' names, what their first lines ``say``, keys of all jobs and of FedTrans's."""

    suffix: str
    says: str
    keys: Keys
    fedtrans: Keys


@dataclass(frozen=True)
class Data:
    """A data set at one size: FedScale's name of its ``kind``, the ``folder`` that ``obtain`` fills, FedTrans's first
    model (``base``) and a ``large`` one for methods that make a model narrower; keys of its jobs, of FedTrans's."""

    title: str
    kind: str
    folder: str
    obtain: tuple[str, ...]
    base: str
    large: str
    keys: Keys = field(default_factory=dict)
    fedtrans: Keys = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """``own`` keys of a method, whether it ``narrows`` a large model for weak clients, how its own paper ``trains``,
    which of FedTrans's models it may be ``given``, and the data sets that have a file of it (default: all)."""

    title: str
    own: Keys
    narrows: bool = False
    trains: str = ""
    given: str = "FedTrans's largest one"
    only: tuple[str, ...] = ()


# Table 7 and section 5.1; what depends on the data set stands there. The decay factor is that of the learning rate
# (FedScale's) and of sharing (eta)
PAPER = Size(
    "", "with the paper's values (section 5.1, Table 7)",
    {"rounds": 2000, "num_participants": 100, "local_steps": 20, "batch_size": 10, "learning_rate": 0.05,
     "decay_factor": 0.98, "decay_round": 10, "eval_interval": 50, "test_bsz": 512, "bn_statistics": "federated"},
    {"alpha": 0.9, "beta": 0.003, "gamma": 10, "delta": 30, "T": 5, "eta": 0.98},
)  # fmt: skip
# as evals/fedtrans/settings.py: with a twentieth of the rounds the loss falls faster, so that beta is larger; delta
# leaves each model ten participants
SMALL = Size(
    "_small", "for a machine with 2 cores: fewer rounds and participants",
    {**PAPER.keys, "rounds": 100, "num_participants": 40, "eval_interval": 10},
    {**PAPER.fedtrans, "beta": 0.02, "gamma": 5, "delta": 40},
)  # fmt: skip
SIZES = (PAPER, SMALL)

_IMPORT = "fedscale dataset import path/to/"
_NASBENCH = ("nasbench201_base", "nasbench201_8x")
_SPEECH = ("resnet18_speech", "resnet18_speech_8x")
_TWO_CLASSES = "--data-set cifar10 --partition classes --classes-per-client 2 --clients 100"
_FEDSCALES = ("FedScale's folder of OpenImage (client_data_mapping/, train/, test/): data_dir names it",)
DATA: Mapping[str, tuple[Data, Data]] = {
    "femnist": (
        Data(
            "FEMNIST", "femnist", "femnist",
            (f"{_IMPORT}leaf/data/femnist/data --data-set femnist -o data/femnist",
             "or generated: fedscale dataset synthesize femnist --writers 3400 -o data/femnist"),
            *_NASBENCH,
        ),
        Data(
            "chars74k, which stands for FEMNIST", "femnist", "chars74k",
            (f"{_IMPORT}chars74k_55writers.npz --data-set femnist -o data/chars74k",
             "or generated: fedscale dataset synthesize femnist -o data/chars74k"),
            *_NASBENCH,
        ),
    ),
    "cifar10": (
        Data(
            "CIFAR-10, two classes a client", "cifar10", "cifar10",
            (f"{_IMPORT}cifar-10-batches-bin {_TWO_CLASSES} -o data/cifar10",),
            "mobilenetv3_small", "resnet18_openimage",
            {"rounds": 1000, "num_participants": 10, "augment": "flip_crop"}, {"delta": 20},
        ),
        Data(
            "a part of CIFAR-10, two classes a client", "cifar10", "cifar10_10k2k",
            (f"{_IMPORT}cifar10_10k2k.npz {_TWO_CLASSES} -o data/cifar10_10k2k",),
            *_NASBENCH,
        ),
    ),
    "speech": (
        Data(
            "Speech Commands", "google_speech", "speech",
            (f"{_IMPORT}speech_commands_v0.02 --data-set google_speech -o data/speech",
             "with FedScale's clients: --client-map path/to/fedscale_speech_client_map.json"),
            *_SPEECH, {"rounds": 1500}, {"delta": 100},
        ),
        Data(
            "Speech Commands, log-mel features of 239 speakers", "google_speech", "speech_logmel",
            (f"{_IMPORT}speech_commands_logmel.npz --data-set google_speech --x logmel --y label --names words "
             "-o data/speech_logmel",),
            *_SPEECH,
        ),
    ),
    "openimage": (
        Data(
            "OpenImage", "openImg", "openImg", _FEDSCALES, "resnet18_openimage", "resnet18",
            {"augment": "flip"}, {"delta": 50},
        ),
        Data("OpenImage", "openImg", "openImg", _FEDSCALES, *_SPEECH),
    ),
}  # fmt: skip

_LARGEST, _MIDDLE = (f"FedTrans's {which} one, as the paper has it" for which in ("largest", "middle"))
_RATES = [1.0, 0.5, 0.25, 0.125, 0.0625]
METHODS: Mapping[str, Method] = {
    "fedtrans": Method("FedTrans", {}),
    "heterofl": Method(
        "HeteroFL",
        {"heterofl.rates": _RATES, "heterofl.scaler": True, "heterofl.mask": True, "heterofl.clip_norm": 1.0,
         "heterofl.dense": True},
        narrows=True, trains="--set learning_rate=0.1", given=_LARGEST,
    ),
    "splitmix": Method(
        "SplitMix", {"splitmix.r": 0.125, "splitmix.rescale_init": True, "splitmix.dense": True},
        narrows=True, trains="--set learning_rate=0.01 --set batch_size=32", given=_LARGEST,
    ),
    "fluid": Method(
        "FLuID",
        {"fluid.p": [0.95, 0.85, 0.75, 0.65, 0.5], "fluid.vote": 0.75, "fluid.increment": 0.2, "fluid.every": 2},
        narrows=True, given=_LARGEST,
    ),
    "fedavg": Method("FedAvg", {}),
    "fedprox": Method("FedProx", {"proxy_mu": 0.1}, given=_MIDDLE),
    "fedyogi": Method(
        "FedYogi", {"yogi_eta": 0.003, "yogi_tau": 1e-8, "yogi_beta": 0.9, "yogi_beta2": 0.99}, given=_MIDDLE
    ),
    "fedrolex": Method("FedRolex", {"fedrolex.rates": _RATES}, narrows=True, only=("femnist",)),
    "fjord": Method(
        "FjORD", {"fjord.p": [0.2, 0.4, 0.6, 0.8, 1.0], "fjord.distil": False}, narrows=True, only=("femnist",)
    ),
}  # fmt: skip


def job_keys(name: str, method: str, data: Data, size: Size) -> dict[str, Any]:
    """The job_conf of a file."""
    how = METHODS[method]
    keys = {
        "job_name": name,
        "log_path": "./",
        "method": method,
        "data_set": data.kind,
        "data_dir": f"./data/{data.folder}",
        "model": data.large if how.narrows else data.base,
        **({"capacity_model": data.base} if how.narrows else {}),
        "device_conf_file": "resampled",
        "use_cuda": False,
        "overcommitment": 1.0,
        "filter_less": 0,
        **size.keys,
        **data.keys,
        **how.own,
    }
    if method == "fedtrans":
        keys |= {f"fedtrans.{key}": value for key, value in {**size.fedtrans, **data.fedtrans}.items()}
    return keys


def header(name: str, method: str, dataset: str, data: Data, size: Size) -> str:
    """What the file is, how to launch it, and where its data and model come from."""
    how = METHODS[method]
    lines = [f"{how.title} on {data.title}, {size.says}.", f"  fedscale driver start {name}"]
    lines += ["Data:", *(f"  {line}" for line in data.obtain)]
    if method != "fedtrans":
        model = f"--set model=logs/fedtrans_{dataset}{size.suffix}/TIME/models/mK.json"
        if how.narrows:
            lines.append(
                f"Model: {data.large} stands for what FedTrans grows from {data.base}; the devices are the same."
            )
        else:
            lines.append(f"Model: {data.base}, FedTrans's first one, which every device affords.")
        lines.append(f"  {how.given}: {model} --set capacity_model={data.base}")
    if how.trains:
        lines.append(f"Steps, batch and learning rate are FedTrans's; {how.title}'s paper: {how.trains}")
    lines.append("Written by benchmark_configs/make.py.")
    return "".join(f"# {line}\n" for line in lines)


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """By file name: the lines on top and the job_conf."""
    made = {}
    for method, how in METHODS.items():
        for dataset in how.only or DATA:
            for size, data in zip(SIZES, DATA[dataset], strict=True):
                name = f"{method}_{dataset}{size.suffix}"
                made[name] = header(name, method, dataset, data, size), job_keys(name, method, data, size)
    return made
