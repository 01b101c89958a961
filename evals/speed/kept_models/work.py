"""A job of clients that keep their models, as HtFLlib and we are asked for it, and its networks.

Imported in HtFLlib's environment, too: nothing here needs more than torch, numpy and this package's models.
"""

import json
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from evals.speed.workload import UsualOrder
from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec

CLIENTS, BATCH, RATE = 20, 10, 0.05
METHODS = ("local", "fedproto", "lgfedavg", "fml")
SHARE = 0.5  # FML's alpha and beta: labels and the other model's outputs count alike
Shape = tuple[int, int, int]

# channels of both convolutions, their kernels, hidden units: features of both networks of a pair have one width
_SIZES = {
    "cnn": (((20, 32), (5, 5), 512), ((16, 24), (5, 5), 512)),
    "small": (((6, 12), (3, 3), 64), ((4, 8), (3, 3), 64)),
}
PAIRS = tuple(_SIZES)


@dataclass(frozen=True)
class Work:
    """What one run of either side is asked for.

    The first half of the clients have the first network of the pair, the others have the second.

    Attributes:
        method: One of METHODS.
        pair: One of PAIRS.
        rounds: Rounds that count: those that are timed, or those after which clients are tested.
        seed: Seed of the initial weights, and of each side's own draws.
        data: Folder that ``data.py`` wrote.
        out: Folder for ``rounds.json`` and whatever else the run leaves.
        tested: Whether clients are tested after every round. Otherwise they are tested as rarely as a side can, and
            rounds with a test do not count.
        htfllib: Checkout of HtFLlib; None for our own job.
        changes: What HtFLlib does otherwise, to find where accuracies part: "shuffled" samples in each epoch;
            FedProto's prototypes "after" training, and averaged "weighted" by samples.

    """

    method: str
    pair: str
    rounds: int
    seed: int
    data: Path
    out: Path
    tested: bool = False
    htfllib: Path | None = None
    changes: tuple[str, ...] = ()

    def argument(self) -> str:
        """The command line argument that says it."""
        return json.dumps(
            {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        )

    @classmethod
    def asked(cls) -> "Work":
        """The work that the command line names."""
        (text,) = sys.argv[1:]
        made = cls(**json.loads(text))
        htfllib = None if made.htfllib is None else Path(made.htfllib)
        return replace(made, data=Path(made.data), out=Path(made.out), htfllib=htfllib, changes=tuple(made.changes))

    @property
    def about(self) -> dict[str, Any]:
        """What ``data.py`` says of its data."""
        content: dict[str, Any] = json.loads((self.data / "about.json").read_text(encoding="utf-8"))
        return content

    @property
    def steps(self) -> int:
        """Local steps of a round: each client has as many samples as all others, and sees each once."""
        return int(self.about["train"]) // BATCH

    def specs(self) -> tuple[ModelSpec, ModelSpec]:
        """The pair's networks for the data."""
        first, second = specs(self.pair, tuple(self.about["shape"]), self.about["classes"])
        return first, second


def specs(pair: str, shape: Shape, classes: int) -> list[ModelSpec]:
    """The networks of a pair, larger first."""
    return [
        ModelSpec.make("cnn", input_shape=shape, num_classes=classes, widths=widths, kernels=kernels, hidden=hidden)
        for widths, kernels, hidden in _SIZES[pair]
    ]


class Split(UsualOrder):
    """The network with its last layer as ``fc``, which HtFLlib takes off, and features of one width before it."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec)
        self.fc: nn.Module = self.linear2
        del self.linear2

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc(functional.relu(self.linear1(x.flatten(1))))


def initial(spec: ModelSpec, seed: int) -> dict[str, Tensor]:
    """Initial weights of all clients with the network, and of nothing else: those that our job draws."""
    state: dict[str, Tensor] = models.initial_state(spec, seed)
    return {name: torch.as_tensor(tensor) for name, tensor in state.items()}
