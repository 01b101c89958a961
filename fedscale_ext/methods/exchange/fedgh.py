"""FedGH (Yi et al., ACM MM 2023, Algorithm 1): the server trains a global head on the clients' mean features.

A client replaces its head by the global one, trains its whole model, and sends the mean features of each of its
classes. The server trains the global head on these, with the classes as labels.

Departures from the paper:

* Algorithm 1 takes a step for each prototype, client by client. Here the order is random; ``batch_size`` 1 and
  ``epochs`` 1 are as many steps. The public code also clips gradients at norm 50. Its steps are of the client's
  optimiser, so that the head does not learn there.
* Prototypes come from a pass over the client's samples after training, in evaluation.
* All clients are tested with the newest head. The paper tests a client after its local training, as
  ``test_around_training`` does.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import About, Count, ModelSpec, Positive, State, Update
from fedscale_ext.methods.exchange.prototypes import SendsPrototypes, labelled, prototypes_template
from fedscale_ext.methods.exchange.server_training import trained
from fedscale_ext.methods.exchange.shared_head import SharedHeadAggregator, SharedHeadClient
from fedscale_ext.methods.exchange.tensor_exchange import FeaturesParams


class FedGHClient(SharedHeadClient, SendsPrototypes):
    """Client that begins with the global head and sends its prototypes."""


@dataclass(frozen=True)
class FedGHParams(FeaturesParams):
    """Hyperparameters of FedGH.

    Attributes:
        epochs: Passes of the server over the round's prototypes.
        batch_size: Prototypes of a step of the server.
        lr: Learning rate of the server's SGD.

    """

    epochs: Count = 1
    batch_size: Count = 1
    lr: Positive = 0.01

    method: ClassVar[str] = "fedgh"


class FedGHAggregator(SharedHeadAggregator):
    """Clients keep bodies of any architecture and share a head that the server trains on mean features (FedGH)."""

    about: ClassVar[About] = About("exchange", 2023)
    Params: ClassVar[type] = FedGHParams
    Client: ClassVar[type] = FedGHClient
    passes_after: ClassVar[int] = 1

    def template(self, spec: ModelSpec) -> State:
        """Prototypes of all classes, and the client's samples of each."""
        return prototypes_template(spec)

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Train the global head by cross-entropy on the prototypes of all clients."""
        prototypes, classes = labelled(sent)

        def loss(head: State, rows: Tensor) -> Tensor:
            logits = functional.linear(prototypes[rows], head["weight"], head.get("bias"))
            return functional.cross_entropy(logits, classes[rows])

        p, generator = self.params, torch_stream(self.seed, round, "head")
        sizes = {"epochs": p.epochs, "batch_size": p.batch_size, "lr": p.lr}
        try:
            self.head = trained(self.head, len(classes), loss, generator=generator, **sizes)
        except FloatingPointError as error:
            self.notice(f"round {round}: {error}, and the head is as before; lower fedgh.lr")
