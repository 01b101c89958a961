"""FedorAS's configuration on Shakespeare, and those of what it is measured against: FedNAS, SPIDER, ZeroFL, FjORD at
each width, and FedAvg on participants that Oort and PyramidFL choose; written to files by make.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Keys = Mapping[str, Any]


@dataclass(frozen=True)
class Data:
    """A data set at one size: FedScale's name of its ``kind``, the ``folder`` that ``obtain`` fills, keys of jobs."""

    title: str
    kind: str
    folder: str
    obtain: str
    keys: Keys


@dataclass(frozen=True)
class Method:
    """Its name in a configuration, the models of the paper's size and of the small one, ``own`` keys, those of the
    small size, and its data sets of both sizes (names in ``DATA``)."""

    title: str
    module: str
    models: tuple[str, str]
    own: Keys
    small: Keys
    data: tuple[str, str]
    note: str = ""


PAPER, SMALL = "with the papers' values", "for a machine with 2 cores"
COMMON: Keys = {
    "device_conf_file": "resampled", "use_cuda": False, "overcommitment": 1.0, "filter_less": 0, "decay_factor": 1.0,
    "client_weight_decay": 0.0, "test_bsz": 512,
}  # fmt: skip
_IMPORT = "fedscale dataset import path/to/"


def _cifar(title: str, source: str, folder: str, clients: int, alpha: str, **keys: Any) -> Data:
    obtain = (f"{_IMPORT}{source} --data-set cifar10 --partition dirichlet --alpha {alpha} --clients {clients} "
              f"-o data/{folder}")  # fmt: skip
    return Data(f"{title}, Dirichlet {alpha} over {clients} clients", "cifar10", folder, obtain, keys)


_AUGMENT = {"augment": "rand_flip_crop"}
_ALL, _PART = ("CIFAR-10", "cifar-10-batches-bin"), ("a part of CIFAR-10", "cifar10_10k2k.npz")
_TEXT = {"learning_rate": 1.0, "client_momentum": 0.0, "clip_norm": 5.0, "batch_size": 4}
_SPEECH = {"augment": "speech", "local_epochs": 1, "batch_size": 64, "learning_rate": 0.1, "client_momentum": 0.9}
DATA: Mapping[str, Data] = {
    "cifar10": _cifar(*_ALL, "cifar10-d1", 100, "1", num_participants=10, rounds=500, eval_interval=25,
                      local_epochs=50, batch_size=128, learning_rate=0.1, **_AUGMENT),
    "cifar10_small": _cifar(*_PART, "cifar10_10k2k-d1", 20, "1", num_participants=5, rounds=40, eval_interval=4,
                            local_epochs=1, batch_size=32, learning_rate=0.1, **_AUGMENT),
    "cifar10_silos": _cifar(*_ALL, "cifar10-8", 8, "0.5", num_participants=8, rounds=1500, eval_interval=25,
                            local_epochs=1, batch_size=32, learning_rate=0.01, **_AUGMENT),
    "cifar10_silos_small": _cifar(*_PART, "cifar10_10k2k-8", 8, "0.5", num_participants=8, rounds=40, eval_interval=4,
                                  local_epochs=1, batch_size=32, learning_rate=0.01, **_AUGMENT),
    "shakespeare": Data("Shakespeare by role", "shakespeare", "shakespeare",
                        f"{_IMPORT}leaf/data/shakespeare/data --data-set shakespeare --stride 80 -o data/shakespeare",
                        {"num_participants": 16, "rounds": 500, "eval_interval": 25, "local_epochs": 5, **_TEXT}),
    "shakespeare_small": Data("a million characters of Shakespeare by role", "shakespeare", "tinyshakespeare",
                              f"{_IMPORT}tinyshakespeare_by_speaker.json --data-set shakespeare "
                              "-o data/tinyshakespeare",
                              {"num_participants": 8, "rounds": 40, "eval_interval": 4, "local_epochs": 1, **_TEXT}),
    "speech": Data("Speech Commands, 35 classes by speaker", "google_speech", "speech",
                   f"{_IMPORT}speech_commands_v0.02 --data-set google_speech -o data/speech",
                   {"num_participants": 21, "rounds": 750, "eval_interval": 25, **_SPEECH}),
    "speech_small": Data("Speech Commands, log-mel features of 239 speakers", "google_speech", "speech_logmel",
                         f"{_IMPORT}speech_commands_logmel.npz --data-set google_speech --x logmel --y label "
                         "--names words -o data/speech_logmel",
                         {"num_participants": 12, "rounds": 40, "eval_interval": 4, **_SPEECH, "batch_size": 16}),
}  # fmt: skip

_DARTS = {"learning_rate": 0.025, "client_weight_decay": 3e-4, "clip_norm": 5.0, "local_epochs": 5, "batch_size": 64}
_CIFAR = ("cifar10", "cifar10_small")


def _chosen(title: str, mode: str) -> Method:
    return Method(f"FedAvg with participants by {title}", "fedavg", ("torchvision_resnet34", "resnet18_speech"),
                  {"sample_mode": mode}, {}, ("speech", "speech_small"),
                  f"FedorAS with participants by {title}: its own file and --set sample_mode={mode}.")  # fmt: skip


METHODS: Mapping[str, Method] = {
    "fedoras_shakespeare": Method(
        "FedorAS", "fedoras", ("rnn_positions", "rnn_positions"),
        {"fedoras.brackets": [7.95, 12.93, 17.9, 22.9, 33.9], "fedoras.shares": [0.2] * 5, "fedoras.subspace": 0.67,
         "fedoras.supernet_rounds": 500, "fedoras.finetune_rounds": 100, "fedoras.score": "loss",
         "fedoras.finetune_lr": 1.0, "fedoras.finetune_batch": 4,
         "fedoras.evaluations": [100, 150, 150, 150, 100], "fedoras.population": 32, "fedoras.parents": 16,
         "rounds": 1001},
        {"fedoras.supernet_rounds": 40, "fedoras.finetune_rounds": 10, "fedoras.evaluations": 48, "rounds": 91},
        ("shakespeare", "shakespeare_small"),
        "Tiers in MMACs as the public code has them; clients are sent 0.83 M of 1.24 M parameters.",
    ),
    "fednas_cifar10": Method(
        "FedNAS", "fednas", ("cnn_l", "cnn_tiny"), {**_DARTS, "fednas.search_rounds": 50},
        {"local_epochs": 1, "batch_size": 32, "fednas.search_rounds": 20}, _CIFAR,
        "The space is FedorAS's; the paper's is DARTS's cells.",
    ),
    "spider_cifar10": Method(
        "SPIDER", "spider", ("cnn_l", "cnn_tiny"),
        {"client_weight_decay": 1e-3, "clip_norm": 5.0, "spider.proj_start": 60, "spider.proj_recovery": 30},
        {"spider.proj_start": 8, "spider.proj_recovery": 4}, ("cifar10_silos", "cifar10_silos_small"),
        "The space is FedorAS's; the paper's is DARTS's cells.",
    ),
    "zerofl_cifar10": Method(
        "ZeroFL", "zerofl", ("resnet18", "cnn_tiny_largest"),
        {"zerofl.sparsity": 0.9, "zerofl.upload": "top_k_weights", "zerofl.mask_ratio": 0.2}, {}, _CIFAR,
    ),
    "fjord_cifar10": Method(
        "FjORD at each width", "fjord", ("resnet18", "resnet_tiny"),
        {"fjord.p": [0.25, 0.5, 0.75, 1.0], "fjord.groups": [25] * 4, "fjord.each_width": True,
         "bn_statistics": "federated", "local_epochs": 1, "batch_size": 32, "client_weight_decay": 1e-4},
        {"fjord.groups": [5] * 4}, _CIFAR,
        "The widths are those that FedorAS's paper compares with; as many clients are on each.",
    ),
    "fedavg_oort_speech": _chosen("Oort", "oort"),
    "fedavg_pyramidfl_speech": _chosen("PyramidFL", "pyramidfl"),
}  # fmt: skip


def jobs() -> dict[str, tuple[str, dict[str, Any]]]:
    """By file name: the lines on top and the job_conf of each method at both sizes."""
    made = {}
    for stem, how in METHODS.items():
        for place, (suffix, says) in enumerate((("", PAPER), ("_small", SMALL))):
            name, data = f"{stem}{suffix}", DATA[how.data[place]]
            lines = [f"{how.title} on {data.title}, {says}.", f"  fedscale driver start {name}",
                     "Data:", f"  {data.obtain}", *([how.note] if how.note else [])]  # fmt: skip
            job = {
                "job_name": name, "log_path": "./", "method": how.module, "data_set": data.kind,
                "data_dir": f"./data/{data.folder}", "model": how.models[place], **COMMON, **data.keys, **how.own,
                **(how.small if suffix else {}),
            }  # fmt: skip
            top = "".join(f"# {line}\n" for line in [*lines, "Written by benchmark_configs/make.py."])
            made[name] = top, job
    return made
