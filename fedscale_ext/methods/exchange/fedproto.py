"""FedProto (Tan et al., AAAI 2022, Algorithm 1): clients of any architecture exchange mean features of classes.

A client's prototype of a class is the mean of its samples' features, the inputs of the last layer. The server averages
the clients' prototypes of each class by samples (Global Prototype Aggregation), and sends the global ones back. Clients
minimise cross-entropy plus ``weight`` times the distance to global prototypes (Local Model Update). A sample is
predicted as the class of the nearest global prototype, or by the client's own head.

Departures from the paper and the public code:

* The distance is the mean squared difference of a sample's features and the prototype of its class, as in the public
  code. The paper compares the client's prototypes with the global ones.
* The paper divides the weighted mean by the number of clients, although the weights add up to one. Here that is left
  out. The public code averages without weights.
* Prototypes come from a pass over the client's samples after training, as Algorithm 1 has it. The public code collects
  features during training.
* A client may predict any class that has a global prototype. The public code tests it among its own classes, as
  ``mask_test`` does here.
* Not all clients take part in a round. A class that no participant has keeps its global prototype.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fedscale_ext.method import About, State, Update
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.prototypes import PROTOTYPES, PrototypesAggregator, PrototypesParams
from fedscale_ext.methods.exchange.tensor_exchange import mean_by_class


@dataclass(frozen=True)
class FedProtoParams(PrototypesParams):
    """Hyperparameters of FedProto."""

    method: ClassVar[str] = "fedproto"


class FedProtoAggregator(PrototypesAggregator):
    """Clients keep models of any architecture and share mean features of classes (FedProto)."""

    about: ClassVar[About] = About("exchange", 2022)
    Params: ClassVar[type] = FedProtoParams

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Average the clients' prototypes of each class by samples."""
        means, counts = mean_by_class([each[PROTOTYPES] for each in sent], [each[COUNTS] for each in sent])
        seen = counts > 0
        self.prototypes = torch.where(seen[:, None], means, self.prototypes)
        self.known = self.known | seen
        self.record("classes_seen", int(seen.sum()))
