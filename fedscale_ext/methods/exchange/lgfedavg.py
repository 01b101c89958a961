"""LG-FedAvg (Liang et al. 2020, Algorithm 1): clients keep representations of their own and average the head.

A client trains its whole model. It sends only the head, and the server averages heads by samples. A client is tested
on the representation that it keeps with the server's head (the paper's local test).

Departures from the paper:

* The head is the last layer, so that bodies may be of any architecture. The paper's is one or more last layers of one
  architecture.
* The paper's ensemble for new clients and its auxiliary losses of the representation are left out.
* Clients that do not take part in a round keep their representations, and get the new head with the next test.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from fedscale_ext.method import (
    About,
    ClientConfig,
    ClientSamples,
    ModelSpec,
    State,
    Update,
    count_mean,
)
from fedscale_ext.methods.exchange.shared_head import SharedHeadAggregator, SharedHeadClient, head_of
from fedscale_ext.methods.exchange.tensor_exchange import FeaturesParams
from fedscale_ext.models.layers.final_layer import final_layer


class LGFedAvgClient(SharedHeadClient):
    """Client that sends its trained head."""

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The head's tensors."""
        return head_of(model.state_dict(), final_layer(self.bench.spec(conf.model_key)))


@dataclass(frozen=True)
class LGFedAvgParams(FeaturesParams):
    """Hyperparameters of LG-FedAvg."""

    method: ClassVar[str] = "lgfedavg"


class LGFedAvgAggregator(SharedHeadAggregator):
    """Clients keep bodies of any architecture and average their heads (LG-FedAvg)."""

    about: ClassVar[About] = About("exchange", 2020)
    Params: ClassVar[type] = LGFedAvgParams
    Client: ClassVar[type] = LGFedAvgClient

    def template(self, spec: ModelSpec) -> State:
        """The head's tensors."""
        layer = final_layer(spec)
        shapes = {"weight": (spec["num_classes"], layer.width), "bias": (spec["num_classes"],)}
        return {name: torch.zeros(shapes[name]) for name in layer.tensors}

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Average the heads by samples."""
        weights = [self.weight(update.item) for update in updates]
        heads = [{name: each[name] for name in self.head} for each in sent]
        self.head = count_mean(self.head, [(head, None, weight) for head, weight in zip(heads, weights, strict=True)])
