"""Data sets and sizes of Moss's evaluation: what each name means at each scale.

Small: 30 devices, ten of each type, all of them in every round, as the paper has them with 300. Each trains on 100
samples (the paper: 100 and 200), or, of UCI HAR's people, once on its 270, which makes as many steps as five times on
the paper's 50 (FedMD's first round is shorter by as much); the server holds as many as a device (100 and 50), of each
class alike (the paper: in proportions of Dirichlet; its third application takes any 50). Types are smaller: Large is a
ResNet-18 of 67,000 parameters, Medium a MobileNetV2 of five thin blocks, Small the paper's own LeNet; each has fewer
parameters and MACs than the one before it, as in the paper. The learning rate is ten times the paper's, on devices and
on the server; all methods have the same, and the same batches and momentum. Devices' time per sample is taken for that
of networks as large as the paper's: ``reference_macs`` is smaller by as much as Large is. ``capacity_model`` is the
same for all, so that all methods deal the same types to the same devices.
"""

from functools import partial
from pathlib import Path
from typing import Any

from evals.paper import engine
from evals.paper.job_keys import Keys, Parameter
from evals.paper.papers import DataSet, Paper
from fedscale_ext import models

LARGE, MEDIUM, SMALL = Parameter("large"), Parameter("medium"), Parameter("small")  # models of the types
# modules at the ends of stages, of the types' models and of the proxies'
STAGE_TAPS, PROXY_STAGE_TAPS = Parameter("stage_taps"), Parameter("proxy_stage_taps")
THIRD, TWO_THIRDS = Parameter("third"), Parameter("two_thirds")  # of the devices
UNRELATED = Parameter("unrelated")  # public data of another task
FOLDER = Path(__file__).resolve().parent
TYPED = ("moss", "fedmd", "feddf", "dsfl", "fedgems", "fedet")  # methods that are told the types' models
DEALT = (*TYPED, "hermes", "tailorfl", "fedmask", "fedskel", "heterofl", "fjord")  # and those told how many have each


def _types(large: str, medium: str, small: str) -> Keys:
    names = [large, medium, small]
    parameters: Keys = {
        LARGE: large,
        MEDIUM: medium,
        SMALL: small,
        STAGE_TAPS: [_stages(name) for name in names],
        PROXY_STAGE_TAPS: _stages(large),
    }
    types = {f"{method}.types": names for method in TYPED}
    return {**parameters, "model": large, "capacity_model": small, **types}


def _stages(name: str) -> str:
    """The modules that a network's family taps by default, but for the stem: L2T-ww matches the ends of stages."""
    taps = models.taps(models.named_spec(name, (3, 32, 32), 10))
    return "+".join(tap for tap in taps if tap != "stem")


def _devices(each: int) -> Keys:
    """So many of each type; a third and two thirds of them are what figure 11b takes."""
    groups = {f"{method}.groups": [each] * 3 for method in DEALT}
    return {"num_participants": 3 * each, THIRD: each, TWO_THIRDS: 2 * each, **groups}


_THIN = _types("resnet18_speech", "mobilenetv2_thin", "lenet_6k")
_LOCAL = ("--test", "local")
_LOG_MEL = ("--x", "logmel", "--y", "label", "--names", "words")
_FEW, _MANY = _devices(10), _devices(100)
_HUNDRED = ("--samples-per-client", "100")
_CIFAR = {"public_samples": 100, UNRELATED: "cifar100_few-iid"}
_SPEECH = {"public_samples": 200, UNRELATED: "fsdd"}
_SKEWED = {"public_classes": "dirichlet"}  # table 1
_HAR = {"public_samples": 50, "sample_shape": "1x32x36", UNRELATED: "chars74k"}
DATA = {
    "cifar10_30": DataSet("cifar10", "cifar10_10k2k.npz", _LOCAL, 30,
                          {**_CIFAR, **_FEW, **_THIN, "reference_macs": 5.3e5}, dirichlet=_HUNDRED),
    "speech12_30": DataSet("speech12", "speech_commands_logmel.npz", (*_LOG_MEL, *_LOCAL), 30,
                           {**_SPEECH, **_FEW, **_THIN, "reference_macs": 1.2e6},
                           small={"public_samples": 100}, dirichlet=_HUNDRED),
    "har_local": DataSet("uci_har", "uci_har.npz", ("--client", "c", *_LOCAL), 30,
                         {**_HAR, **_FEW, **_THIN, "reference_macs": 6.3e5},
                         small={"local_epochs": 1, "fedmd.private_epochs": 5},
                         paper={**_types("resnet18", "mobilenetv2", "lenet_6k"), "reference_macs": 3e8}),
    # of other tasks, for figure 10
    "cifar100_few": DataSet("cifar100", "cifar100_3k600.npz", clients=1),
    "fsdd": DataSet("fsdd", "fsdd_600.npz", ("--x", "audio", "--y", "label")),
    "fsdd_mfcc32": DataSet("fsdd_mfcc32", "fsdd_600.npz", ("--x", "audio", "--y", "label")),
    "chars74k": DataSet("femnist", "chars74k_55writers.npz"),
    # the paper's, imported beforehand into folders of these names with their partition, such as cifar10_full-h0.1
    "cifar10_full": DataSet("cifar10", clients=300, dirichlet=_HUNDRED,
                            keys={**_CIFAR, **_SKEWED, **_MANY, **_types("resnet18", "mobilenetv2", "lenet_80k")}),
    "speech12_full": DataSet("speech12_mfcc32", clients=300, dirichlet=("--samples-per-client", "200"),
                             keys={**_SPEECH, **_SKEWED, UNRELATED: "fsdd_mfcc32", **_MANY,
                                   **_types("resnet18", "mobilenetv2", "lenet_6k")}),
}  # fmt: skip
STANDS_FOR = {
    "cifar10": {"smoke": "cifar10_30-h0.1", "small": "cifar10_30-h0.1", "paper": "cifar10_full-h0.1"},
    "speech": {"smoke": "speech12_30-h0.1", "small": "speech12_30-h0.1", "paper": "speech12_full-h0.1"},
    "har": {"smoke": "har_local", "small": "har_local", "paper": "har_local"},
}
_QUICK = {"feddf.steps": 200, "feddf.patience": 50}  # the paper's 10,000 and 1,000 take ten times as long
# one for all (section 4.2.4), but for what EXCEPTIONS names
RATES = ("learning_rate", "moss.lr", "dsfl.lr", "fedgems.lr", "fedet.lr")
BATCHES = ("batch_size", "moss.batch_size", "fedmd.digest_batch", "feddf.batch_size", "dsfl.batch_size",
           "fedgems.batch_size", "fedet.batch_size")  # fmt: skip
MOMENTA = ("client_momentum", "moss.momentum", "fedgems.momentum", "fedet.momentum")
EXCEPTIONS = {
    "feddf.lr": "Adam's, with a cosine schedule, as FedDF has it: a rate of SGD says nothing of it",
    "fedmask.lr": "of scores, through which weights that stay as drawn are chosen; the devices' is for weights",
    "moss.meta_lr": "Adam's, of the meta-networks (L2T-ww's)",
}
_SAME: dict[str, Any] = {
    **dict.fromkeys(BATCHES, 32),
    **dict.fromkeys(MOMENTA, 0.9),
    "test_on_all": True,
    "test_around_training": True,
    "personalise_epochs": 5,
}
PAPER = Paper(
    name="moss",
    folder=FOLDER,
    data=DATA,
    sizes={
        "smoke": {
            **_SAME, **dict.fromkeys(RATES, 0.01), **_QUICK, "feddf.steps": 4, "fedet.steps": 2, "rounds": 2,
            "personalise_epochs": 1, "local_steps": 1, "public_samples": 30, "moss.epochs": 1,
            "fedmd.pretrain_epochs": 1, "fedmd.private_epochs": 1, "fedgems.server_epochs": 1,
        },
        "small": {**_SAME, **dict.fromkeys(RATES, 0.01), **_QUICK, "rounds": 25, "local_epochs": 5},
        "paper": {**_SAME, **dict.fromkeys(RATES, 0.001), "rounds": 50, "local_epochs": 5, "cohort_size": "auto"},
    },
    stands_for=STANDS_FOR,
    base_model="resnet18_speech",
)  # fmt: skip
main = partial(engine.main, PAPER)
