"""The tasks: data with their clients, what a round is, and the MACs that a job may spend."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evals.benchmark.moved import FRAME, write_moved
from evals.benchmark.networks import FOLDED, FRAMED, SMALL, USUAL, Networks
from evals.paper.papers import DataSet, Paper


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        title: What pages call it.
        shape: Of a sample, (C, H, W).
        classes: Number of classes.
        clients: Number of clients.
        budget_macs: Training MACs that all clients together spend in a job.
        networks: Its networks.
        seeds: Seeds of the table; the seed after the last one chooses learning rates.
        keys: job_conf keys of all its jobs.
        stages: job_conf keys of methods whose stages have a number of rounds, by method.
        rates: Learning rates to choose from.
        tests: Tests of all clients in a job, at equal steps of the budget; a multiple of four.
        rows: Labels of the rows that it has; none: all.
        about: What its table needs to be read.
        remarks: Sentences below its table, about single rows.
    """

    title: str
    shape: tuple[int, int, int]
    classes: int
    clients: int
    budget_macs: float
    networks: Networks = USUAL
    seeds: tuple[int, ...] = (1, 2, 3)
    keys: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rates: tuple[float, ...] = (0.03, 0.1, 0.3)
    tests: int = 12
    rows: tuple[str, ...] = ()
    about: str = ""
    remarks: str = ""

    @property
    def short_title(self) -> str:
        """What headings call it: the data set."""
        return self.title.split(",")[0]


# FedorAS has 5 rounds of the supernet to one of fine-tuning each tier, as in its paper; FedNAS searches for half of its
# budget; SPIDER trains all operators of a layer twice, so that five rounds spend it
_HAR_STAGES = {
    "fedoras": {"stop_macs": None, "rounds": 121, "$.supernet_rounds": 60, "$.finetune_rounds": 12},
    "fednas": {"$.search_rounds": 3},
    "spider": {"stop_macs": None, "rounds": 5, "$.proj_start": 2, "$.proj_recovery": 1},
}
_MNIST_STAGES = {
    "fedoras": {"stop_macs": None, "rounds": 170, "$.supernet_rounds": 84, "$.finetune_rounds": 17},
    "fednas": {"$.search_rounds": 3},
    "spider": {"stop_macs": None, "rounds": 5, "$.proj_start": 2, "$.proj_recovery": 1},
}
_STEPS = {"num_participants": 10, "local_steps": 20, "batch_size": 20}
_DATA_FREE = (
    "local only", "FedAvg, weakest device's model", "FedProto", "FedTGP", "LG-FedAvg", "FedGH", "FD", "FML", "FedKD",
    "FedMRL", "FedGen", "FedL2G",
)  # fmt: skip
_CHARS = (
    "Methods that share neither public samples nor whole models, and two floors. Each writer wrote each character "
    "once, so a client never trains on the classes of its own test samples, and training alone gives 0 %. What a model "
    "knows of other writers' characters is in the column `on all %`. All have learning rate 0.1, FedKD 0.03. "
    "[The task is not hard enough](README.md#is-a-task-hard-enough) to judge methods by."
)
_FEDNAS = (
    "FedNAS searches for half of its budget. Then it trains the network that it found from new weights, so it is near "
    "chance at 50 %."
)
_UNCONVERGED = (
    "The largest model on pooled samples has 92.1, 90.3 and 52.1 % with seeds 1 to 3. It has not converged at this "
    "budget, so it is no ceiling here."
)
TASKS = {
    # its file has steps and sensors mixed (evals/data.md): read as they were meant, it is not hard enough
    "har": Task("UCI HAR, mixed axes", (9, 8, 16), 6, 30, 0.03e12, FOLDED, seeds=(1, 2, 3, 4, 5),
                keys={**_STEPS, "local_steps": 10, "sample_shape": "9x8x16", "public_samples": 60}, stages=_HAR_STAGES,
                remarks=_FEDNAS),
    "chars": Task("chars74k", (1, 28, 28), 62, 55, 0.05e12, SMALL,
                  keys={**_STEPS, "local_steps": 10, "public_samples": 110}, rows=_DATA_FREE, about=_CHARS),
    "mnist": Task("MNIST, moved digits", (1, FRAME, FRAME), 10, 100, 0.07e12, FRAMED,
                  keys={**_STEPS, "local_steps": 10, "public_samples": 200, "unit_size": 10, "cohort_size": 10},
                  stages=_MNIST_STAGES, rates=(0.1, 0.3), tests=4, remarks=f"{_FEDNAS} {_UNCONVERGED}"),
    "speech": Task("Speech Commands", (1, 49, 40), 35, 239, 2.0e12, keys={**_STEPS, "public_samples": 239}),
    "cifar10": Task("CIFAR-10", (3, 32, 32), 10, 100, 2.0e12, replace(USUAL, weakest="lenet_6k"),
                    keys={**_STEPS, "public_samples": 200}),
    "fashion": Task("Fashion-MNIST", (1, 28, 28), 10, 100, 1.0e12, keys={**_STEPS, "public_samples": 200}),
}  # fmt: skip

JUDGING = ("har", "mnist")
"""The tasks that are hard enough to judge methods by, as README.md says of each."""

_LOCAL = ("--test", "local")
_LOG_MEL = ("--x", "logmel", "--y", "label", "--names", "words")
_DATA = {
    "har": DataSet("uci_har", "uci_har.npz", ("--client", "c", *_LOCAL), 30),
    "chars": DataSet("femnist", "chars74k_55writers.npz", _LOCAL),
    "mnist": DataSet("mnist", "mnist.npz", ("--shape", f"1x{FRAME}x{FRAME}", *_LOCAL), 100,
                     dirichlet=("--min-samples", "20"), rewritten=write_moved),
    "speech": DataSet("speech", "speech_commands_logmel.npz", (*_LOG_MEL, *_LOCAL)),
    "cifar10": DataSet("cifar10", "cifar10_10k2k.npz", _LOCAL, 100, dirichlet=("--min-samples", "20")),
    "fashion": DataSet("fashionmnist", "fashionmnist_20k4k.npz", _LOCAL, 100, dirichlet=("--min-samples", "20")),
}  # fmt: skip
PARTITION = {"mnist": "mnist-h1", "cifar10": "cifar10-h0.5", "fashion": "fashion-h0.5"}
"""Names of the data of tasks without clients of their own, as :meth:`Paper.prepared` reads them."""

BENCHMARK = Paper("benchmark", Path(__file__).resolve().parent, _DATA, {"small": {}}, {}, base_model="small")
