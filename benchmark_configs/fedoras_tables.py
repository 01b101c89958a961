"""FedorAS's configurations, written to files by make.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Data:
    """A data set at one size: FedScale's name of its ``kind``, the ``folder`` that ``obtain`` fills, the supernet, and
    the keys of its job; ``notes`` on top of the file."""

    title: str
    kind: str
    folder: str
    obtain: str
    model: str
    keys: Keys
    notes: tuple[str, ...] = ()


PAPER, SMALL = "with the paper's values", "for a machine with 2 cores"
COMMON: Keys = {
    "device_conf_file": "resampled", "use_cuda": False, "overcommitment": 1.0, "filter_less": 0,
    "client_momentum": 0.9, "client_weight_decay": 0.0, "learning_rate": 0.1, "decay_factor": 1.0,
    "eval_interval": 50, "test_bsz": 512,
}  # fmt: skip
TIERS = 4
TWINS: Mapping[str, int] = {PAPER: 500, SMALL: 30}  # rounds of each twin, where they are asked for


def _keys(
    stages: tuple[int, int], participants: int, epochs: int, batch: int, evaluations: Any,
    nsga: tuple[int, int, float], **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """``stages``: rounds of supernet training, and of fine-tuning for each tier; ``nsga``: paths that it begins with,
    that it keeps, and how often an operator is redrawn."""
    supernet, tuning = stages
    return {
        "rounds": supernet + 1 + TIERS * tuning, "num_participants": participants, "local_epochs": epochs,
        "batch_size": batch, "fedoras.supernet_rounds": supernet, "fedoras.finetune_rounds": tuning,
        "fedoras.evaluations": evaluations, "fedoras.population": nsga[0], "fedoras.parents": nsga[1],
        "fedoras.mutation": nsga[2], **more,
    }  # fmt: skip


_IMPORT = "fedscale dataset import path/to/"
_NSGA, _SPEECH_NSGA, _SMALL_NSGA = (128, 64, 0.1), (96, 48, 0.1), (32, 16, 0.1)
_RAND = {"augment": "rand_flip_crop", "fedoras.finetune_clients": 6}
_FEW = {"eval_interval": 10, "fedoras.subspace": 0.5}


def _dirichlet(kind: str, alpha: float, clients: int, samples: int) -> str:
    """As Table 2 has it, ``samples`` of a data set are dealt so that all clients train on as many."""
    each = f"--samples-per-client {samples // clients}"
    return f"--data-set {kind} --partition dirichlet --alpha {alpha:g} --clients {clients} {each}"


DATA: Mapping[str, tuple[str, Data]] = {
    "cifar10": (PAPER, Data(
        "CIFAR-10, Dirichlet 1", "cifar10", "cifar10-lda1",
        f"{_IMPORT}cifar-10-batches-bin {_dirichlet('cifar10', 1, 100, 50_000)} -o data/cifar10-lda1 (or 1000, or 0.1)",
        "cnn_l", _keys((500, 100), 10, 50, 128, 1000, _NSGA, **_RAND))),
    "cifar100": (PAPER, Data(
        "CIFAR-100, Dirichlet 0.1", "cifar100", "cifar100-lda0.1",
        f"{_IMPORT}cifar-100-binary {_dirichlet('cifar100', 0.1, 500, 50_000)} -o data/cifar100-lda0.1",
        "cnn_l", _keys((750, 100), 10, 25, 64, 1000, _NSGA, **_RAND))),
    "speech": (PAPER, Data(
        "Speech Commands, 12 classes by speaker, cepstra", "speech12_mfcc", "speech12",
        f"{_IMPORT}speech_commands_v0.02 --data-set speech12_mfcc -o data/speech12",
        "cnn_s", _keys((750, 100), 21, 25, 64, [2000, 500, 500, 2000], _SPEECH_NSGA, augment="speech"))),
    "cifar10_small": (SMALL, Data(
        "a part of CIFAR-10, Dirichlet 0.1", "cifar10", "cifar10_10k2k-lda0.1",
        f"{_IMPORT}cifar10_10k2k.npz {_dirichlet('cifar10', 0.1, 20, 10_000)} -o data/cifar10_10k2k-lda0.1",
        "cnn_tiny", _keys((60, 15), 10, 2, 32, 64, _SMALL_NSGA, augment="flip_crop", **_FEW))),
    "cifar100_small": (SMALL, Data(
        "a part of CIFAR-100, Dirichlet 0.1", "cifar100", "cifar100_3k600-lda0.1",
        f"{_IMPORT}cifar100_3k600.npz {_dirichlet('cifar100', 0.1, 20, 3_000)} -o data/cifar100_3k600-lda0.1",
        "cnn_tiny", _keys((60, 15), 10, 4, 32, 64, _SMALL_NSGA, augment="flip_crop", **_FEW))),
    "speech_small": (SMALL, Data(
        "Speech Commands, log-mel features of 239 speakers", "google_speech", "speech_logmel",
        f"{_IMPORT}speech_commands_logmel.npz --data-set google_speech --x logmel --y label --names words "
        "-o data/speech_logmel",
        "cnn_s", _keys((40, 10), 12, 2, 16, 48, _SMALL_NSGA, augment="speech", **_FEW,
                       **{"fedoras.shares": [0.4, 0.2, 0.2, 0.2]}))),
}  # fmt: skip


def job_keys(name: str, data: Data) -> dict[str, Any]:
    """The job_conf of a file."""
    return {
        "job_name": name, "log_path": "./", "method": "fedoras", "data_set": data.kind,
        "data_dir": f"./data/{data.folder}", "model": data.model, **COMMON, **data.keys,
    }  # fmt: skip


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """By file name: the lines on top and the job_conf."""
    made = {}
    for dataset, (says, data) in DATA.items():
        name, own = f"fedoras_{dataset}", data.keys
        twins, rounds = TWINS[says], own["rounds"] + TIERS * TWINS[says]
        lines = [
            f"FedorAS on {data.title}, {says}.", f"  fedscale driver start {name}", "Data:", f"  {data.obtain}",
            f"Rounds: {own['fedoras.supernet_rounds']} of supernet training, the search, then for each of {TIERS} "
            f"tiers {own['fedoras.finetune_rounds']} of fine-tuning.",
            "Federated evaluation: --set fedoras.evaluation=federated",
            f"Twins from random weights: --set fedoras.twin_rounds={twins} --set rounds={rounds}",
            "Participants by Oort or PyramidFL: --set sample_mode=oort, or pyramidfl",
            *data.notes, "Written by benchmark_configs/make.py.",
        ]  # fmt: skip
        made[name] = "".join(f"# {line}\n" for line in lines), job_keys(name, data)
    return made
