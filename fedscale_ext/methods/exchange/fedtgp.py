"""FedTGP (Zhang et al., AAAI 2024): the server trains global prototypes that lie apart from each other.

Clients send the mean features of each of their classes, and learn towards the global prototypes, as in FedProto. A
global prototype is the output of a small network for a trainable vector of its class. The server trains both by
adaptive-margin-enhanced contrastive learning (ACL): a client's prototype shall be nearer to the global one of its
class, by a margin, than to those of other classes. A class's margin is the distance between its centre and the nearest
other one. The loss has the largest of these, at most ``margin``. A centre is the mean of the clients' prototypes of a
class, each client counting alike.

The margin, the network and the defaults are those of the authors' public code and run file.

Departures from the paper and the public code:

* Not all clients take part in a round. The server learns only from the round's participants.
* Batches of the server are drawn from a stream of the job's seed.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import About, Count, NotNegative, Population, Positive, State, Task, Update
from fedscale_ext.methods.exchange.client import class_means
from fedscale_ext.methods.exchange.prototypes import PrototypesAggregator, PrototypesParams, labelled
from fedscale_ext.methods.exchange.server_training import trained

_LEAST = 1e-12  # of a squared distance: the root has no gradient at zero


@dataclass(frozen=True)
class FedTGPParams(PrototypesParams):
    """Hyperparameters of FedTGP.

    Attributes:
        weight: Weight lambda of the distance between a sample's features and its class's prototype.
        margin: Largest margin tau of the contrastive loss.
        epochs: Passes S of the server over the round's prototypes.
        batch_size: Prototypes of a step of the server.
        lr: Learning rate of the server's SGD.

    """

    weight: NotNegative = 10.0
    margin: NotNegative = 100.0
    epochs: Count = 100
    batch_size: Count = 10
    lr: Positive = 0.01

    method: ClassVar[str] = "fedtgp"


def generated(state: State) -> Tensor:
    """The global prototypes [classes, F] from the classes' vectors."""
    hidden = functional.relu(functional.linear(state["vectors"], state["weight1"], state["bias1"]))
    return functional.linear(hidden, state["weight2"], state["bias2"])


def contrastive(prototypes: Tensor, classes: Tensor, centres: Tensor, margin: float) -> Tensor:
    """Mean loss of clients' prototypes [n, F] of ``classes`` int64 [n]; global ones are [classes, F]."""
    squared = (prototypes[:, None] - centres).square().sum(-1)
    distances = squared.clamp(min=_LEAST).sqrt() + margin * functional.one_hot(classes, len(centres)).to(squared)
    return functional.cross_entropy(-distances, classes)


def adaptive_margin(prototypes: Tensor, classes: Tensor, num_classes: int, most: float) -> float:
    """The largest distance of a class's centre to the nearest other one, at most ``most``; that for one class alone."""
    centres, counts = class_means(prototypes, classes, num_classes)
    there = centres[counts > 0]
    nearest = torch.cdist(there, there).fill_diagonal_(float("inf")).amin(1)
    return min(float(nearest.max()), most)


class FedTGPAggregator(PrototypesAggregator):
    """Clients keep models of any architecture and learn towards prototypes that the server trains (FedTGP)."""

    about: ClassVar[About] = About("exchange", 2024)
    Params: ClassVar[type] = FedTGPParams

    def init_state(self, population: Population, task: Task) -> None:
        """Draw the server's vectors and network as torch draws an embedding and linear layers."""
        super().init_state(population, task)
        width, generator = self.width, torch_stream(self.seed, "prototypes")

        def uniform(*shape: int) -> Tensor:
            return (2.0 * torch.rand(shape, generator=generator) - 1.0) / width**0.5

        self.network = {"vectors": torch.randn(task.num_classes, width, generator=generator)}
        for layer in ("1", "2"):
            self.network |= {f"weight{layer}": uniform(width, width), f"bias{layer}": uniform(width)}

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Train the global prototypes; all classes have one from then on."""
        p, (prototypes, classes) = self.params, labelled(sent)
        margin = adaptive_margin(prototypes, classes, self.task.num_classes, p.margin)
        self.record("margin", margin)

        def loss(network: State, rows: Tensor) -> Tensor:
            return contrastive(prototypes[rows], classes[rows], generated(network), margin)

        sizes = {"epochs": p.epochs, "batch_size": p.batch_size, "lr": p.lr}
        try:
            generator = torch_stream(self.seed, round, "prototypes")
            self.network = trained(self.network, len(classes), loss, generator=generator, **sizes)
        except FloatingPointError as error:
            self.notice(f"round {round}: {error}, and prototypes are as before; lower fedtgp.lr")
            return
        self.prototypes, self.known = generated(self.network), torch.ones_like(self.known)

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the prototypes and the server's network."""
        tensors, data = super().state()
        return {**tensors, **{f"network.{name}": tensor for name, tensor in self.network.items()}}, data

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.network = {name: tensors[f"network.{name}"] for name in self.network}
        super().load_state(tensors, data)
