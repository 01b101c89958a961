"""Data sets and sizes of HypeMeFed's evaluation: what each name means at each scale.

Small: UCI HAR's 30 people stand for UniMiB SHAR, 24,000 pictures of Fashion-MNIST with 50 Dirichlet clients for SVHN
and STL-10, 3,600 of CIFAR-100 with 30 clients for the whole. Networks are smaller by about the factor by which
``reference_macs`` is, so that clocks stay in proportion. As in the paper a fifth of the clients takes part, five local
epochs by Adam; its weight decay is a tenth of the learning rate (public code).
"""

from functools import partial
from pathlib import Path
from typing import Any

from evals.paper import engine
from evals.paper.job_keys import Keys, Parameter
from evals.paper.papers import DataSet, Paper

GROUPED = ("hypemefed", "heterofl", "fedrolex", "scalefl", "depthfl")  # methods that are told who trains which level
BACKBONE = Parameter("backbone")  # network of a data set, which each method trains in its own form
# public code: each client's own fifth is its test data
_LOCAL = ("--test", "local")
_AT_LEAST = ("--min-samples", "50")


def _keys(backbone: str, *groups: int, **keys: Any) -> Keys:
    """Of a data set: its network, clients by level (smallest first), and devices that afford the first exit."""
    levels: dict[str, Any] = {f"{method}.groups": list(groups) for method in GROUPED}
    # the same for all methods: their running statistics are means over different sets of clients
    levels["bn_statistics"] = "federated"
    network = {"model": BACKBONE.formatted("multi_exit_{}"), "capacity_model": BACKBONE.formatted("first_exit_{}")}
    return {BACKBONE: backbone, **network, **levels, **keys}


_MANY, _FEW = (17, 17, 16), (10, 10, 10)
_HAR = {"sample_shape": "9x1x128", "num_participants": 6, "reference_macs": 2.7e6}  # paper: 83 M MACs, here 0.76 M
_FASHION = {"num_participants": 10, "reference_macs": 1.5e7}  # 52.9 M, 2.6 M
_CIFAR = {"num_participants": 6, "reference_macs": 1.9e7}  # 556 M, 35 M
DATA = {
    "har_local": DataSet("uci_har", "uci_har.npz", ("--client", "c", *_LOCAL), 30, _keys("vgg_small", *_FEW, **_HAR),
                         small={"rounds": 60, "eval_interval": 3}, dirichlet=("--min-samples", "24")),
    # the same, each sensor's steps in order: the file has them mixed, see evals/data.md
    "har_series": DataSet("uci_har", "uci_har.npz", ("--client", "c", "--transposed", *_LOCAL), 30,
                          _keys("vgg_small", *_FEW, **_HAR), small={"rounds": 60, "eval_interval": 3},
                          dirichlet=("--min-samples", "24")),
    "fashion": DataSet("fashionmnist", "fashionmnist_20k4k.npz", _LOCAL, 50, _keys("vgg_small", *_MANY, **_FASHION),
                       dirichlet=_AT_LEAST),
    "cifar100_small": DataSet("cifar100", "cifar100_3k600.npz", _LOCAL, 30,
                              _keys("resnet18_small", *_FEW, **_CIFAR, batch_size=16), dirichlet=_AT_LEAST),
    # the paper's, imported beforehand into folders of these names with their partition, such as svhn-h0.5
    "svhn": DataSet("svhn", clients=50, keys=_keys("vgg_svhn", *_MANY, num_participants=10, batch_size=128,
                                                   learning_rate=5e-4, client_weight_decay=5e-5)),
    "stl10": DataSet("stl10", clients=50, keys=_keys("vgg_stl10", *_MANY, num_participants=10,
                                                     learning_rate=5e-4, client_weight_decay=5e-5)),
    "unimib": DataSet("unimib_shar", clients=30, keys=_keys("vgg_unimib", *_FEW, num_participants=6, batch_size=16,
                                                            learning_rate=5e-3, client_weight_decay=5e-4)),
    "fashionmnist": DataSet("fashionmnist", clients=50, keys=_keys("cnn3", *_MANY, num_participants=10)),
    "cifar100": DataSet("cifar100", clients=50, keys=_keys("resnet18", *_MANY, num_participants=10)),
}  # fmt: skip
STANDS_FOR = {
    "unimib": {"smoke": "har_local", "small": "har_local", "paper": "unimib-h0.5"},
    "svhn": {"smoke": "fashion-h0.5", "small": "fashion-h0.5", "paper": "svhn-h0.5"},
    "stl10": {"smoke": "fashion-h0.5", "small": "fashion-h0.5", "paper": "stl10-h0.5"},
    "fashionmnist": {"smoke": "fashion-h0.5", "small": "fashion-h0.5", "paper": "fashionmnist-h0.5"},
    "cifar100": {"smoke": "cifar100_small-h0.5", "small": "cifar100_small-h0.5", "paper": "cifar100-h0.5"},
}
PAPER = Paper(
    name="hypemefed",
    folder=Path(__file__).resolve().parent,
    data=DATA,
    sizes={
        "smoke": {"rounds": 2, "local_epochs": 1, "eval_interval": 1, "num_participants": 3, "hypemefed.epochs": 2},
        # DepthFL's exits learn from each other ever more over 300 rounds, which is more than there are here
        "small": {"rounds": 40, "eval_interval": 4, "depthfl.ramp_up": 12},
        "paper": {"rounds": 300, "eval_interval": 10, "cohort_size": "auto"},
    },
    stands_for=STANDS_FOR,
    base_model="multi_exit_vgg_small",
    fedavg_model=BACKBONE.formatted("single_exit_{}"),
)
main = partial(engine.main, PAPER)
