"""Data sets and sizes of FedorAS's evaluation: what each name means at each scale.

Small: 20 clients of 500 pictures each, as many as a client of the paper has, ten of them in a round as in the paper,
and the space ``cnn_tiny``, CNN-L's operators on a fifteenth of its widths and depths' MACs. Random weights train one
epoch a round where the supernet has several (the paper: 50, and 500 rounds of both). Supernets have so many rounds that
an operator of theirs, one of nine of a layer, sees as many steps for one of random weights as in the paper: 1.5 on
CIFAR-10, 2.1 on CIFAR-100, 1.7 on Speech Commands, 0.7 on text. Fine-tuning comes on top.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evals.paper import engine
from evals.paper.job_keys import Keys, Parameter
from evals.paper.papers import DataSet, Paper

SUPERNET_ROUNDS, TWIN_ROUNDS = Parameter("supernet_rounds"), Parameter("twin_rounds")
SUPERNET_DECAY = Parameter("supernet_decay")  # of the supernet's learning rate in each round, in rows where it falls
PATH_STEPS = Parameter("path_steps")  # local steps where a step trains a path
UNTIL_DONE = 1_000_000  # rounds of a job that ends when its stages are done


def _stages(supernet: int, finetune: int, twins: int, decay: float = 1.0, **more: Any) -> Keys:
    """Rounds of each stage, the supernet's decay, and ``more`` of FedorAS's keys."""
    keys = {"supernet_rounds": supernet, "finetune_rounds": finetune, **more}
    stages = {f"fedoras.{name}": value for name, value in keys.items()}
    return {SUPERNET_ROUNDS: supernet, TWIN_ROUNDS: twins, SUPERNET_DECAY: decay, **stages}


_SEARCH = {"evaluations": 48, "population": 24, "parents": 16}
_SMALL: Keys = {
    "rounds": 60, "num_participants": 10, "local_epochs": 5, "batch_size": 32, "learning_rate": 0.05,
    "decay_factor": 0.95, "decay_round": 1, "eval_interval": 15, "fednas.search_rounds": 20,
    PATH_STEPS: 60, **_stages(30, 6, 30, 0.95, finetune_clients=6, **_SEARCH),
}  # fmt: skip
_SMOKE: Keys = {
    "rounds": 2, "num_participants": 3, "local_steps": 1, "batch_size": 8, "eval_interval": 1000,
    "fednas.search_rounds": 1, PATH_STEPS: 1, "spider.proj_start": 1, "spider.proj_recovery": 1,
    **_stages(1, 1, 1, evaluations=3, population=3, parents=2, val_fraction=0.02, finetune_batch=32),
}  # fmt: skip
_PAPER: Keys = {
    "num_participants": 10, "cohort_size": "auto", "eval_interval": 50, PATH_STEPS: 20,
    "fednas.search_rounds": 50, "spider.proj_start": 60, "spider.proj_recovery": 30,
}  # fmt: skip

_CIFAR: dict[str, Any] = {"model": "cnn_tiny", "augment": "flip_crop"}
_SPEECH: dict[str, Any] = {"model": "cnn_s", "augment": "speech", "fedoras.shares": [0.4, 0.2, 0.2, 0.2]}
_SILOS = {"rounds": 20, "local_epochs": None, "local_steps": 6, "decay_factor": 0.92, "spider.proj_start": 4,
          "spider.proj_recovery": 3, "fednas.search_rounds": 10,
          **_stages(20, 10, 20, 0.92, **_SEARCH)}  # fmt: skip
_LOG_MEL = ("--x", "logmel", "--y", "label", "--names", "words")
_SPEECH_SMALL = {"num_participants": 20, "batch_size": 16, "local_epochs": 4, "rounds": 40, "decay_factor": 0.96,
                 "eval_interval": 40,
                 **_stages(94, 8, 40, 0.98278, finetune_clients=20, val_fraction=0.5, **_SEARCH)}  # fmt: skip
# 1.0 is the paper's learning rate, of a loss at every position of the text; paths are judged by perplexity
_TEXT: dict[str, Any] = {"model": "rnn_positions", "client_momentum": 0.0, "clip_norm": 5.0, "fedoras.subspace": 0.67,
                         "fedoras.score": "loss", "fedoras.finetune_lr": 1.0}  # fmt: skip
# beside the sizes, which have others for pictures
_TEXT_STEPS: dict[str, Any] = {"learning_rate": 1.0, "decay_factor": 1.0, "batch_size": 4, "fedoras.finetune_batch": 4}
_CIFAR_PAPER: Keys = {"model": "cnn_l", "augment": "rand_flip_crop", "fedoras.finetune_clients": 6}
_NSGA = {"population": 128, "parents": 64}


def _each(samples: int) -> tuple[str, str]:
    """Training samples of each client: Table 2 has them of about one size, whatever alpha is."""
    return "--samples-per-client", str(samples)


DATA = {
    "cifar10": DataSet("cifar10", "cifar10_10k2k.npz", clients=20, keys=_CIFAR, small=_stages(80, 6, 30, 0.980949),
                       dirichlet=_each(500)),
    # a hundred clients of 100 pictures, as many clients as the paper has
    "cifar10_100": DataSet("cifar10", "cifar10_10k2k.npz", clients=100, keys=_CIFAR,
                           small={"num_participants": 10, "local_epochs": 15}, dirichlet=_each(100)),
    # cross-silo: everybody takes part
    "silos8": DataSet("cifar10", "cifar10_10k2k.npz", clients=8, keys=_CIFAR,
                      small={**_SILOS, "num_participants": 8, "fedoras.finetune_clients": 8}),
    "silos20": DataSet("cifar10", "cifar10_10k2k.npz", clients=20, keys=_CIFAR,
                       small={**_SILOS, "num_participants": 20, "fedoras.finetune_clients": 20}),
    "cifar100": DataSet("cifar100", "cifar100_3k600.npz", clients=20, keys=_CIFAR,
                        small={"local_epochs": 12, **_stages(47, 6, 30, 0.96779)}, dirichlet=_each(150)),
    "speech": DataSet("speech", "speech_commands_logmel.npz", _LOG_MEL, keys=_SPEECH, small=_SPEECH_SMALL),
    "speech12": DataSet("speech12", "speech_commands_logmel.npz", _LOG_MEL, keys=_SPEECH, small=_SPEECH_SMALL),
    "tinyshakespeare": DataSet("shakespeare", "tinyshakespeare_by_speaker.json", keys=_TEXT,
                               small={**_TEXT_STEPS, "num_participants": 8, "eval_interval": 60, "local_epochs": 5,
                                      **_stages(40, 8, 40, finetune_clients=8, val_fraction=0.25, evaluations=20,
                                                population=12, parents=8)}),
    # the paper's, imported beforehand into folders of these names, such as cifar10_full-h0.1
    "cifar10_full": DataSet("cifar10", clients=100, keys=_CIFAR_PAPER,
                            paper={"rounds": 500, "local_epochs": 50, "batch_size": 128,
                                   **_stages(500, 100, 500, evaluations=1000, **_NSGA)}),
    "silos8_full": DataSet("cifar10", clients=8, keys=_CIFAR_PAPER,
                              paper={"rounds": 1500, "num_participants": 8, "fedoras.finetune_clients": 8,
                                     "local_epochs": 1, "batch_size": 32,
                                     **_stages(500, 100, 500, evaluations=1000, **_NSGA)}),
    "silos20_full": DataSet("cifar10", clients=20, keys=_CIFAR_PAPER,
                               paper={"rounds": 500, "num_participants": 20, "fedoras.finetune_clients": 20,
                                      "local_epochs": 1, "batch_size": 32,
                                      **_stages(500, 100, 500, evaluations=1000, **_NSGA)}),
    "cifar100_full": DataSet("cifar100", clients=500, keys=_CIFAR_PAPER,
                             paper={"rounds": 750, "local_epochs": 25, "batch_size": 64,
                                    **_stages(750, 100, 500, evaluations=1000, **_NSGA)}),
    "speech12_full": DataSet("speech12_mfcc", keys={**_SPEECH, "fedoras.shares": [0.8, 0.0125, 0.0125, 0.175]},
                             paper={"rounds": 750, "num_participants": 21, "local_epochs": 25, "batch_size": 64,
                                    **_stages(750, 100, 500, evaluations=[2000, 500, 500, 2000], population=96,
                                              parents=48)}),
    "speech_full": DataSet("speech", keys={**_SPEECH, "fedoras.shares": [0.8, 0.0125, 0.0125, 0.175]},
                           paper={"rounds": 750, "num_participants": 21, "local_epochs": 25, "batch_size": 64,
                                  **_stages(750, 100, 500, evaluations=[2000, 500, 500, 2000], population=96,
                                            parents=48)}),
    "shakespeare": DataSet("shakespeare", keys=_TEXT,
                           paper={**_TEXT_STEPS, "rounds": 500, "num_participants": 16, "local_epochs": 5,
                                  **_stages(500, 100, 500, evaluations=[100, 150, 150, 150, 100], population=32,
                                            parents=16)}),
}  # fmt: skip


def _stand_ins() -> Mapping[str, Mapping[str, str]]:
    """Of each data set of the paper, at each scale; Dirichlet's alpha is the paper's at all of them."""
    dealt = {"cifar10": ("cifar10", "cifar10_full"), "judged": ("cifar10_100", "cifar10_full"),
             "silos8": ("silos8", "silos8_full"), "silos20": ("silos20", "silos20_full"),
             "cifar100": ("cifar100", "cifar100_full")}  # fmt: skip
    partitioned = {
        f"{name}-h{alpha}": {"smoke": f"{small}-h{alpha}", "small": f"{small}-h{alpha}", "paper": f"{whole}-h{alpha}"}
        for name, (small, whole) in dealt.items()
        for alpha in ("1000", "1", "0.5", "0.2", "0.1")
    }
    whole = {"speech12": "speech12_full", "speech35": "speech_full", "shakespeare": "shakespeare"}
    small = {"speech12": "speech12", "speech35": "speech", "shakespeare": "tinyshakespeare"}
    return partitioned | {name: {"smoke": small[name], "small": small[name], "paper": whole[name]} for name in whole}


PAPER = Paper(
    name="fedoras",
    folder=Path(__file__).resolve().parent,
    data=DATA,
    sizes={"smoke": _SMOKE, "small": _SMALL, "paper": _PAPER},
    stands_for=_stand_ins(),
    base_model="cnn_tiny",
    fedavg_model="cnn_tiny_largest",
)
main = partial(engine.main, PAPER)
