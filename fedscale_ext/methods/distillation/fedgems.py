"""FedGEMS (Cheng et al. 2021): a large server model learns of labelled public samples from clients that know better.

In a round, clients learn the server's logits of the public samples by epsilon CE + (1 - epsilon) KL. They train on
their own samples, and report their logits. The server's model trains on the public samples with the same loss. Its
teacher is chosen for each sample (selective knowledge fusion). Where the model is right itself, the teacher is its own
logits as they were before. Where it is wrong, it is the mean logits of the clients that are right, each weighed by one
over the entropy of its answer. Where no model is right there is no KL, and of the loss epsilon CE is left.

No code of the authors is known. This follows the paper's description; values that it leaves open have the defaults
below (epsilon is also a third party's).

Departures from the paper:

* Clients learn at the beginning of the next round, so that a client meets the server once.
* All clients report their logits of all samples, also where the server is right.
* The server's own logits are those of this round. The paper keeps those of rounds in which a sample was right, which
  are no longer its teacher when it is wrong.

A third party's class teaches samples that the server has right by CE alone, and those that no model has right by all
clients' mean.

Paper to code, section by section: docs/methods/distillation.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedscale_ext.method import About, Count, Fraction, Positive
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.consensus import entropy_weights, right, weighted
from fedscale_ext.methods.distillation.fitting import Fit, logits_of
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator, Phase
from fedscale_ext.methods.distillation.losses import divergence, hard_cross_entropy
from fedscale_ext.methods.distillation.public_models import SERVER


@dataclass(frozen=True)
class FedGEMSParams(DeviceTypesParams):
    """Hyperparameters of FedGEMS.

    The job's ``model`` is the server's, the largest of all.

    Attributes:
        epsilon: Weight of labels against teachers, at clients and the server: epsilon CE + (1 - epsilon) KL.
        epochs: Epochs in which clients learn from the server, per round.
        server_epochs: Epochs in which the server's model learns, per round.
        batch_size: Public samples of a batch, at clients and the server.
        lr: Learning rate of the server's SGD.
        momentum: Momentum of the server's SGD.

    """

    epsilon: Fraction = 0.75
    epochs: Count = 1
    server_epochs: Count = 5
    batch_size: Count = 32
    lr: Positive = 0.01
    momentum: Fraction = 0.9

    method: ClassVar[str] = "fedgems"


def fuse(server: Tensor, clients: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Selective knowledge fusion: choose the teacher of each public sample.

    Args:
        server: Logits of the server's model, [n, classes].
        clients: Logits of the participants, [clients, n, classes].
        labels: Classes int64 [n].

    Returns:
        The teacher's logits [n, classes], and whether a sample has a teacher, bool [n].

    """
    knows, others = right(server, labels), right(clients, labels)
    fused = weighted(clients, entropy_weights(clients, others))
    return torch.where(knows[:, None], server, fused), knows | others.any(0)


class FedGEMSAggregator(LogitsExchangeAggregator):
    """A large server model and clients of any architecture teach each other on labelled public samples (FedGEMS)."""

    about: ClassVar[About] = About("distillation", 2021, "public samples")
    Params: ClassVar[type] = FedGEMSParams
    needs_labels: ClassVar[bool] = True
    has_server_model: ClassVar[bool] = True

    def phases(self, first: bool) -> list[Phase]:
        """Learn from the server's logits and the labels."""
        p = self.params
        how = {"epochs": p.epochs, "batch_size": p.batch_size, "told": True}
        return [{"loss": "labels+teacher", "epsilon": p.epsilon, **how}]

    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """Train the server's model on the fused logits, and return its logits of all samples, [n, classes]."""
        p, x, labels = self.params, self.public.x[rows], self.public.labels
        assert labels is not None  # needs_labels
        labels = labels[rows]
        server = self.pool[SERVER]
        server_logits = logits_of(server.spec, server.state, x)
        teacher, taught = fuse(server_logits, logits, labels)
        self.record("server_right", float(right(server_logits, labels).double().mean()))
        self.record("taught", float(taught.double().mean()))

        def loss(output: Tensor, at: Tensor) -> Tensor:
            pulled = torch.where(taught[at], divergence(output, teacher[at]), 0.0)
            return p.epsilon * hard_cross_entropy(output, labels[at]) + (1.0 - p.epsilon) * pulled

        how = Fit(lr=p.lr, momentum=p.momentum, batch_size=p.batch_size, epochs=p.server_epochs)
        trained = self.train_server(round, server.state, x, loss, how)
        return logits_of(server.spec, trained, x)
