"""Data sets and sizes of the evaluation: what each name means at each scale.

Small runs keep what decides the claims: at least ten participants per model, so that gamma + delta leaves time for two
or three children only (`dilution` shows what more of them do). All methods serve static BatchNorm statistics, measured
by a federated pass: those that cut models need them, and running ones would put the others at a disadvantage. With a
twentieth of the paper's rounds the training loss falls about twenty times as fast per round, so that beta is larger;
figure 10 sweeps it.
"""

from functools import partial
from pathlib import Path
from typing import Any

from evals.paper import engine
from evals.paper.papers import DataSet, Paper

SMOKE: dict[str, Any] = {
    "rounds": 4, "num_participants": 6, "local_steps": 2, "eval_interval": 2,
    "fedtrans.gamma": 1, "fedtrans.delta": 1, "fedtrans.beta": 1e9,
}  # fmt: skip
_SMALL: dict[str, Any] = {
    "rounds": 100, "num_participants": 40, "eval_interval": 10, "bn_statistics": "federated",
    "fedtrans.gamma": 5, "fedtrans.delta": 40, "fedtrans.beta": 0.02,
}  # fmt: skip
_PAPER: dict[str, Any] = {
    "rounds": 2000, "num_participants": 100, "eval_interval": 50, "bn_statistics": "federated", "cohort_size": "auto",
    "fedtrans.gamma": 10, "fedtrans.delta": 30, "fedtrans.beta": 0.003,
}  # fmt: skip


FOLDER = Path(__file__).resolve().parent
_LOG_MEL = ("--x", "logmel", "--y", "label", "--names", "words")
_HAR = ("--client", "c")
_CIFAR_PAPER = {
    "rounds": 1000,
    "num_participants": 10,
    "fedtrans.delta": 20,
    "augment": "flip_crop",
    "heterofl.dense": True,
    "splitmix.dense": True,
}
DATA = {
    "chars74k": DataSet("femnist", "chars74k_55writers.npz", clients=55),
    "mnist": DataSet("mnist", "mnist.npz", clients=200, small={"rounds": 60, "fedtrans.delta": 10}),
    "cifar10": DataSet("cifar10", "cifar10_10k2k.npz", clients=100),
    "speech": DataSet("speech", "speech_commands_logmel.npz", _LOG_MEL, clients=239,
                      keys={"model": "resnet18_speech"}),
    # the same with half of the base's channels, which does as well (`base_size`) at a quarter of the cost
    "speech_half": DataSet("speech", "speech_commands_logmel.npz", _LOG_MEL, clients=239,
                           keys={"model": str(FOLDER / "models" / "resnet18_speech_half.json")}),
    "har": DataSet("uci_har", "uci_har.npz", _HAR, clients=30, small={"num_participants": 30}),
    # the same, each sensor's steps in order: the file has them mixed, see evals/data.md
    "har_series": DataSet("uci_har", "uci_har.npz", (*_HAR, "--transposed"), clients=30,
                          small={"num_participants": 30}),
    # the paper's, imported beforehand into folders of these names
    "femnist": DataSet("femnist", clients=3400),
    "cifar10_full": DataSet("cifar10", keys={"model": "mobilenetv3_small"}, paper=_CIFAR_PAPER),
    "speech_full": DataSet("speech", keys={"model": "resnet18_speech"},
                           paper={"rounds": 1500, "fedtrans.delta": 100}),
    "openimage": DataSet("openimage", keys={"model": "resnet18_openimage"},
                         paper={"fedtrans.delta": 50, "augment": "flip"}),
}  # fmt: skip
# which data a script takes where it is not told: the data sets of the paper, and what stands for them
STANDS_FOR = {
    "femnist": {"smoke": "chars74k", "small": "chars74k", "paper": "femnist"},
    "cifar10": {"smoke": "cifar10-h0.5", "small": "cifar10-h0.5", "paper": "cifar10_full"},
    "speech": {"smoke": "speech", "small": "speech", "paper": "speech_full"},
    "openimage": {"smoke": "har", "small": "har", "paper": "openimage"},
}
PAPER = Paper(
    name="fedtrans",
    folder=FOLDER,
    data=DATA,
    sizes={"smoke": SMOKE, "small": _SMALL, "paper": _PAPER},
    stands_for=STANDS_FOR,
    base_model="nasbench201_base",  # of job.yml
)
main = partial(engine.main, PAPER)
