"""The folder's README.md: which files there are, from the same tables as they."""

from collections.abc import Collection

import fedoras_tables
import fedtrans_tables
import hypemefed_tables
import moss_tables
import search_tables

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
  when the accuracy has not risen by 1 % in 10 rounds (`--set stop_gain=0.01`, with any method).
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
epochs of WIRE. Files of CIFAR-10 and Speech Commands say how to take public data of another task (not for FedGEMS,
which needs labels). FedMD, DS-FL and FedGEMS keep a model of each client on disk, as a device would: of the larger
files, some gigabytes. Values of their own papers are the defaults, but that batches are everybody's 32, and the
servers of DS-FL, FedGEMS and Fed-ET learn at the clients' rate (FedDF's by Adam); FedDF's and Fed-ET's take fewer
steps in small files, which have the sizes and the devices of [the evaluation](../evals/moss/README.md): by
`reference_macs`, a sample takes them as long as one of the paper's networks. The pruning baselines have files named
`METHOD_moss_DATA`: types keep 1, 0.4 and 0.05 of the parameters, as the paper has it, or, by a key that stands on
top, as many as Moss's types.
"""


_SEARCHES = """\
## FedorAS on text, and what it is measured against

FedNAS and SPIDER search the spaces that FedorAS searches; ZeroFL and FjORD train a network as it is, FjORD with its
accuracy at each width, and so does FedAvg with participants by Oort and PyramidFL. Sizes, steps and learning rates are
those of the papers and public codes.
"""


def readme(made: Collection[str]) -> str:
    """The page; ``made`` are the files' names, without .yml."""
    parts = [_fedtrans(), _hypemefed(made), _fedoras(), _moss(), _searches()]
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def _fedtrans() -> list[str]:
    methods, data_sets = fedtrans_tables.METHODS, fedtrans_tables.DATA
    beside = [f"{method}_{dataset}{size.suffix}" for method, how in methods.items() for dataset in how.only
              for size in fedtrans_tables.SIZES]  # fmt: skip
    lines = [
        *_README.splitlines(),
        "",
        "| | " + " | ".join(f"`{dataset}`" for dataset in data_sets) + " |",
        "|---" * (len(data_sets) + 1) + "|",
    ]
    for method, how in methods.items():
        if not how.only:
            names = [f"{method}_{dataset}" for dataset in data_sets]
            links = " | ".join(f"[{name}]({name}.yml), [_small]({name}_small.yml)" for name in names)
            lines.append(f"| {how.title} | {links} |")
    lines += [
        "",
        "Beside them: [quickstart](quickstart.yml), and on FEMNIST "
        + ", ".join(f"[{name}]({name}.yml)" for name in beside)
        + ".",
        "",
        "| | data | FedTrans's first model | narrowed by HeteroFL, SplitMix, FLuID | rounds | participants | delta |",
        "|---|---|---|---|---|---|---|",
    ]
    for dataset, sizes in data_sets.items():
        for size, data in zip(fedtrans_tables.SIZES, sizes, strict=True):
            job = fedtrans_tables.job_keys("", "fedtrans", data, size)
            lines.append(
                f"| `{dataset}{size.suffix}` | {data.title} | `{data.base}` | `{data.large}` | {job['rounds']} "
                f"| {job['num_participants']} | {job['fedtrans.delta']} |"
            )
    return lines


def _hypemefed(made: Collection[str]) -> list[str]:
    lines = [*_HYPEMEFED.splitlines(), "", "| | data | network | clients by level | files |", "|---|---|---|---|---|"]
    for dataset, (_, own) in hypemefed_tables.DATA.items():
        of_it = [f"{method}_{dataset}" for method in hypemefed_tables.METHODS if f"{method}_{dataset}" in made]
        levels = "ten of 5" if len(own.groups) == 10 else ", ".join(map(str, own.groups))
        links = ", ".join(f"[{name.removesuffix(f'_{dataset}')}]({name}.yml)" for name in of_it)
        lines.append(f"| `{dataset}` | {own.title} | `multi_exit_{own.backbone}` | {levels} | {links} |")
    return lines


def _fedoras() -> list[str]:
    lines = [*_FEDORAS.splitlines(), "", "| | data | supernet | rounds by stage | file |", "|---|---|---|---|---|"]
    for dataset, (_, each) in fedoras_tables.DATA.items():
        supernet, tuning = (each.keys[f"fedoras.{stage}_rounds"] for stage in ("supernet", "finetune"))
        stages = f"{supernet}, search, {fedoras_tables.TIERS} x {tuning}"
        file = f"[fedoras_{dataset}](fedoras_{dataset}.yml)"
        lines.append(f"| `{dataset}` | {each.title} | `{each.model}` | {stages} | {file} |")
    return lines


def _moss() -> list[str]:
    top = "| | data | types, as many devices of each | public samples | files |"
    lines = [*_MOSS.splitlines(), "", top, "|---|---|---|---|---|"]
    for dataset, (_, app) in moss_tables.DATA.items():
        types = ", ".join(f"`{name}`" for name in app.types)
        files_of = ("moss", *moss_tables.BASELINES)
        links = ", ".join(f"[{method}]({method}_{dataset}.yml)" for method in files_of)
        lines.append(f"| `{dataset}` | {app.title} | {types} | {app.public} | {links} |")
    lines += ["", "| | pruning baselines |", "|---|---|"]
    for dataset in moss_tables.DATA:
        links = ", ".join(f"[{method}]({method}_moss_{dataset}.yml)" for method in moss_tables.PRUNED)
        lines.append(f"| `{dataset}` | {links} |")
    return lines


def _searches() -> list[str]:
    lines = [*_SEARCHES.splitlines(), "", "| | data | model | files |", "|---|---|---|---|"]
    for stem, search in search_tables.METHODS.items():
        for suffix, where, model in zip(("", "_small"), search.data, search.models, strict=True):
            title = search_tables.DATA[where].title
            lines.append(f"| {search.title} | {title} | `{model}` | [{stem}{suffix}]({stem}{suffix}.yml) |")
    return lines
