"""Writes the configurations of this folder and its README.md from tables of sizes, data sets and methods: FedTrans's
here, HypeMeFed's in hypemefed_tables.py, FedorAS's in fedoras_tables.py, what it is measured against (and FedorAS on
text) in search_tables.py, Moss's in moss_tables.py.

    python benchmark_configs/make.py

Change the tables, never the files that they make; tests/test_benchmark_configs.py compares. quickstart.yml alone is
written by hand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fedoras_tables
import hypemefed_tables
import moss_tables
import search_tables

HERE = Path(__file__).resolve().parent
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

_MACHINES = """\
# ---- machines: aggregator, and host:[executors on GPU 0, executors on GPU 1, ...] ----
ps_ip: 127.0.0.1
worker_ips:
  - localhost:[2]
exp_path: fedscale_ext
aggregator_entry: {}
executor_entry: {}
auth:
  ssh_user: ""
setup_commands:

# ---- the job; docs/configuration.md lists the keys beside FedScale's own ----
job_conf:
"""


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


def entries(method: str) -> tuple[str, str]:
    """Entry files of aggregator and executors."""
    if method in ("fedtrans", "hypemefed", "fedoras", "moss"):
        return f"methods/{method}/aggregator.py", f"methods/{method}/executor.py"
    return f"methods/{method}.py", f"methods/{method}.py"


def _text(value: Any) -> str:
    # PyYAML, and FedScale's driver with it, takes 1e-08 for text: YAML 1.1 wants the point
    if isinstance(value, float) and "e" in repr(value) and "." not in repr(value):
        return repr(value).replace("e", ".0e")
    return str(value)


def files() -> dict[str, str]:
    """Every configuration's name (without .yml) and text."""
    made = {}
    for method, how in METHODS.items():
        for dataset in how.only or DATA:
            for size, data in zip(SIZES, DATA[dataset], strict=True):
                name = f"{method}_{dataset}{size.suffix}"
                job = job_keys(name, method, data, size)
                text = header(name, method, dataset, data, size) + "\n" + _MACHINES.format(*entries(method))
                made[name] = text + _lines(job)
    others = {**hypemefed_tables.jobs(), **fedoras_tables.jobs(), **search_tables.jobs(), **moss_tables.jobs()}
    for name, (top, job) in others.items():
        made[name] = top + "\n" + _MACHINES.format(*entries(job["method"])) + _lines(job)
    return made


def _lines(job: Keys) -> str:
    return "".join(f"  - {key}: {_text(value)}\n" for key, value in job.items())


def readme() -> str:
    """README.md: which files there are."""
    made = files()
    grid = [name for name, how in METHODS.items() if not how.only]
    lines = [
        *_README.splitlines(),
        "",
        "| | " + " | ".join(f"`{dataset}`" for dataset in DATA) + " |",
        "|---" * (len(DATA) + 1) + "|",
        *(
            f"| {METHODS[method].title} | "
            + " | ".join(f"[{method}_{dataset}]({method}_{dataset}.yml), [_small]({method}_{dataset}_small.yml)"
                         for dataset in DATA) + " |"
            for method in grid
        ),
        "",
        "Beside them: [quickstart](quickstart.yml), and on FEMNIST "
        + ", ".join(f"[{method}_{dataset}{size.suffix}]({method}_{dataset}{size.suffix}.yml)"
                    for method, how in METHODS.items() for dataset in how.only for size in SIZES) + ".",
        "",
        "| | data | FedTrans's first model | narrowed by HeteroFL, SplitMix, FLuID | rounds | participants | delta |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for dataset, sizes in DATA.items():
        for size, data in zip(SIZES, sizes, strict=True):
            job = job_keys("", "fedtrans", data, size)
            delta = job["fedtrans.delta"]
            lines.append(
                f"| `{dataset}{size.suffix}` | {data.title} | `{data.base}` | `{data.large}` | {job['rounds']} "
                f"| {job['num_participants']} | {delta} |"
            )
    lines += [
        "",
        *_HYPEMEFED.splitlines(),
        "",
        "| | data | network | clients by level | files |",
        "|---|---|---|---|---|",
    ]
    for dataset, (_, own) in hypemefed_tables.DATA.items():
        of_it = [f"{method}_{dataset}" for method in hypemefed_tables.METHODS if f"{method}_{dataset}" in made]
        levels = "ten of 5" if len(own.groups) == 10 else ", ".join(map(str, own.groups))
        links = ", ".join(f"[{name.removesuffix(f'_{dataset}')}]({name}.yml)" for name in of_it)
        lines.append(f"| `{dataset}` | {own.title} | `multi_exit_{own.backbone}` | {levels} | {links} |")
    lines += ["", *_FEDORAS.splitlines(), "", "| | data | supernet | rounds by stage | file |", "|---|---|---|---|---|"]
    for dataset, (_, each) in fedoras_tables.DATA.items():
        supernet, tuning = (each.keys[f"fedoras.{stage}_rounds"] for stage in ("supernet", "finetune"))
        stages = f"{supernet}, search, {fedoras_tables.TIERS} x {tuning}"
        file = f"[fedoras_{dataset}](fedoras_{dataset}.yml)"
        lines.append(f"| `{dataset}` | {each.title} | `{each.model}` | {stages} | {file} |")
    lines += [
        "",
        *_MOSS.splitlines(),
        "",
        "| | data | types, as many devices of each | public samples | files |",
        "|---|---|---|---|---|",
    ]
    for dataset, (_, app) in moss_tables.DATA.items():
        types = ", ".join(f"`{name}`" for name in app.types)
        files_of = ("moss", *moss_tables.BASELINES)
        links = ", ".join(f"[{method}]({method}_{dataset}.yml)" for method in files_of)
        lines.append(f"| `{dataset}` | {app.title} | {types} | {app.public} | {links} |")
    lines += ["", "| | pruning baselines |", "|---|---|"]
    for dataset in moss_tables.DATA:
        links = ", ".join(f"[{method}]({method}_moss_{dataset}.yml)" for method in moss_tables.PRUNED)
        lines.append(f"| `{dataset}` | {links} |")
    lines += ["", *_SEARCHES.splitlines(), "", "| | data | model | files |", "|---|---|---|---|"]
    for stem, search in search_tables.METHODS.items():
        for suffix, where, model in zip(("", "_small"), search.data, search.models, strict=True):
            title = search_tables.DATA[where].title
            lines.append(f"| {search.title} | {title} | `{model}` | [{stem}{suffix}]({stem}{suffix}.yml) |")
    return "\n".join(lines) + "\n"


_README = """\
# Configurations

FedTrans and its baselines on the paper's four data sets, with its values (section 5.1, Table 7), and each beside it as
`…_small` for a machine with 2 cores. Launch one by its name, from the folder that `data/` and `logs/` are in:

    fedscale driver start fedtrans_femnist_small
    fedscale driver start fedtrans_cifar10 --set use_cuda=True --set worker_ips='localhost:[1]'

Each file says on top how to get its data ([more](../evals/README.md#real-data)). `make.py` writes all of them and this
page; change it, not them.

- The paper gives HeteroFL, SplitMix and FLuID the largest model that FedTrans grew (FedProx and FedYogi the middle
  one). No file can know it: they name a model, and on top how to name FedTrans's. The named ones have about 8 times the
  MACs of FedTrans's first model (4 times for `openimage`), so that a fifth to a half of the devices afford the whole.
  `capacity_model` keeps the devices those of FedTrans's job. FLuID leaves half of the neurons at least: devices that
  afford less train that half all the same, and the job counts them.
- FedAvg, FedProx and FedYogi train FedTrans's first model, which every device affords.
- Steps, batch, learning rate, rounds and participants are Table 7's for every method, so that the jobs compare; a
  method's own keys are its paper's or code's. How HeteroFL's and SplitMix's papers train stands on top of their files
  (they count local epochs; `local_steps` counts steps). FedProx's and FedYogi's constants are FedScale's defaults.
- `augment` in `cifar10` and `openimage` is what FedScale's loaders do. Jobs last all rounds; the paper also ends them
  when the accuracy has not risen by 1 % in 10 rounds (`--set fedtrans.stop=accuracy`).
- Small sizes are those of [evals/fedtrans](../evals/fedtrans/README.md): `beta` is larger, for with a twentieth of the
  rounds the loss falls faster. The models of `cifar10_small` and `openimage_small` are smaller than the paper's.
"""


_HYPEMEFED = """\
## HypeMeFed

HypeMeFed on the paper's data sets (section 5.1; 5.4 for CIFAR-100 with ResNet-18 and for Fashion-MNIST with ten exits),
UCI HAR beside UniMiB SHAR, and its baselines: `fedavg_l` and `fedavg_s` train the whole network and the one up to the
first exit, whatever clients afford. Everybody's levels are as large as HypeMeFed's, the weakest devices on the
smallest; HeteroFL's and FedRolex's have 1, 3/4 and 1/2 of the channels. All weigh clients by their samples.
The small ones are those of [evals/hypemefed](../evals/hypemefed/README.md).
"""


_FEDORAS = """\
## FedorAS

FedorAS's three stages in one job each ([how](../docs/fedoras.md)). Tiers hold the shares of clients that the paper's
code has, the weakest devices in the lowest. The small files are not the jobs of
[the evaluation](../evals/fedoras/README.md), which for CIFAR-10 have 80 rounds of five epochs at a learning rate of
0.05 and judge 48 paths for each tier.
"""


_MOSS = """\
## Moss

Moss, distillation systems and pruning baselines on the paper's applications (section 4.1), or what stands for them,
with its values (4.2): full participation (fewer: `num_participants`), five local epochs, and on Moss's server five
epochs of WIRE. Files say how to take public data of another task (not for FedGEMS, which needs labels). FedMD, DS-FL
and FedGEMS keep a model of each client on disk, as a device would: of the larger files, some gigabytes. Values of
their own papers are the defaults, but that batches are everybody's 32, and the servers of DS-FL, FedGEMS and Fed-ET
learn at the clients' rate (FedDF's by Adam); FedDF's and Fed-ET's take fewer steps in small files, which have the sizes
and the devices of [the evaluation](../evals/moss/README.md): by `reference_macs`, a sample takes them as long as one of
the paper's networks. The pruning baselines have files named `METHOD_moss_DATA`: types keep 1, 0.4 and 0.05 of the
parameters, as the paper has it, or, by a key that stands on top, as many as Moss's types.
"""


_SEARCHES = """\
## FedorAS on text, and what it is measured against

FedNAS and SPIDER search the spaces that FedorAS searches; ZeroFL and FjORD train a network as it is, FjORD with its
accuracy at each width, and so does FedAvg with participants by Oort and PyramidFL. Sizes, steps and learning rates are
those of the papers and public codes.
"""


def main() -> None:
    """Write the files."""
    for name, text in files().items():
        (HERE / f"{name}.yml").write_text(text, encoding="utf-8")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
