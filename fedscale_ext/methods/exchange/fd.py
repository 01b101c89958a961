"""Federated distillation (FD, FedDistill; Jeong et al. 2018, Algorithm 1): clients exchange mean outputs of classes.

An output is the softmax of a sample's logits, what the paper calls a logit vector. A client sends the mean output of
each of its classes. It receives, for each class, the mean of what the other clients sent, each client counting alike.
Clients minimise cross-entropy with the label plus ``weight`` times cross-entropy with the others' mean for that label.

Departures from the paper:

* Mean outputs come from a pass over the client's samples after training. In the paper they are collected during the
  round's steps.
* Not all clients take part in a round. The others' mean is of the round before, for those who took no part too.
* The paper's federated augmentation, which sends samples, is another method.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    ClientSamples,
    ClientTensors,
    ModelSpec,
    NotNegative,
    Population,
    ReceivedTensors,
    State,
    Task,
    Update,
)
from fedscale_ext.methods.distillation.losses import soft_cross_entropy
from fedscale_ext.methods.exchange.client import (
    COUNTS,
    KNOWN_CLASSES,
    TensorExchangeClient,
    class_means,
    client_rows,
)
from fedscale_ext.methods.exchange.tensor_exchange import TensorExchangeAggregator, TensorExchangeParams
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.training.resident import Cohort

OUTPUTS = "outputs"  # name in the messages: mean outputs, [known, classes] or of all classes


class FDClient(TensorExchangeClient):
    """Client that learns the others' mean output of a sample's class, and sends its own ones."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 0.0))
        self._targets: Tensor | None = None  # [classes, classes], or [K, classes, classes] of a cohort

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy, plus the weighted one with the others' mean output, [...]; zero for an unknown class."""
        losses = super().losses(output, labels)
        if self._targets is None:
            return losses
        logits = deepest(output, labels.dim() + 1)
        return losses + self._weight * soft_cross_entropy(logits, client_rows(self._targets.to(logits), labels))

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train with what the client received."""
        self._targets = self._received([conf], model)
        if self._targets is not None:
            self._targets = self._targets[0]
        return super().train(client_data, model, conf)

    def train_cohort(
        self, data: Sequence[ClientSamples], cohort: Cohort, confs: Sequence[ClientConfig]
    ) -> list[dict[str, Any] | Exception]:
        """Train a cohort, each client with what it received."""
        self._targets = self._received(confs, self.bench.module(confs[0].model_key))
        return super().train_cohort(data, cohort, confs)

    def _received(self, confs: Sequence[ClientConfig], model: nn.Module) -> Tensor | None:
        """What each client received as tables [clients, classes, classes]; None in tests and fine-tuning."""
        if confs[0].received_tensors is None:
            return None
        weight = model.get_submodule(self.layer).weight
        assert isinstance(weight, Tensor)
        classes = len(weight)
        tables = torch.zeros(len(confs), classes, classes, device=confs[0].received_tensors[KNOWN_CLASSES].device)
        for table, conf in zip(tables, confs, strict=True):
            assert conf.received_tensors is not None
            table[conf.received_tensors[KNOWN_CLASSES].long()] = conf.received_tensors[OUTPUTS]
        return tables

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The mean output [classes, classes] of each class, and the client's samples of it."""
        _, logits = self.features_and_logits(model, data.x, conf)
        means, counts = class_means(logits.softmax(1), data.y, logits.shape[1])
        return {OUTPUTS: means, COUNTS: counts}


@dataclass(frozen=True)
class FDParams(TensorExchangeParams):
    """Hyperparameters of federated distillation.

    Attributes:
        weight: Weight gamma of the cross-entropy with the others' mean outputs. With 1, both count alike.

    """

    weight: NotNegative = 1.0

    method: ClassVar[str] = "fd"


class FDAggregator(TensorExchangeAggregator):
    """Clients keep models of any architecture and share mean outputs of classes (FD)."""

    about: ClassVar[About] = About("exchange", 2018)
    Params: ClassVar[type] = FDParams
    Client: ClassVar[type] = FDClient

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models; nobody has sent anything yet."""
        self.senders = torch.zeros(0, dtype=torch.int64)  # clients of the last round
        self.outputs = torch.zeros(0, task.num_classes, task.num_classes)  # theirs
        self.holds = torch.zeros(0, task.num_classes, dtype=torch.bool)  # which classes each of them has
        self._messages: dict[int, State] = {}  # by client, 0 for those that did not take part in the last round
        super().init_state(population, task)

    def client_tensors(self) -> list[ClientTensors]:
        """Send each client the others' outputs, too."""
        most = self.task.num_classes * (4 * self.task.num_classes + 4)
        others = ReceivedTensors(self.message_for, most)
        return [*super().client_tensors(), others]

    def template(self, spec: ModelSpec) -> State:
        """Outputs of all classes, and the client's samples of each."""
        classes = spec["num_classes"]
        return {OUTPUTS: torch.zeros(classes, classes), COUNTS: torch.zeros(classes, dtype=torch.int32)}

    def message(self) -> State:
        """Nothing is the same for all clients."""
        return {}

    def message_for(self, client: int) -> State:
        """The mean output of each class over the other clients that have it."""
        sender = client if bool((self.senders == client).any()) else 0
        if sender not in self._messages:
            self._messages[sender] = self._others(sender)
        return self._messages[sender]

    def _others(self, client: int) -> State:
        holds = self.holds & (self.senders != client)[:, None]
        number = holds.sum(0)  # [classes]
        total = (self.outputs.double() * holds[..., None]).sum(0)
        classes = number.nonzero().flatten()
        means = total[classes] / number[classes, None]
        return {OUTPUTS: means.to(self.outputs.dtype), KNOWN_CLASSES: classes.int()}

    def objective(self) -> dict[str, Any]:
        """The weight of the others' outputs."""
        return {"weight": self.params.weight}

    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Keep what the round's clients sent until the next round."""
        self.senders = torch.tensor([update.client for update in updates])
        self.outputs = torch.stack([each[OUTPUTS] for each in sent])
        self.holds = torch.stack([each[COUNTS] > 0 for each in sent])
        self._messages = {}

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return what the last round's clients sent."""
        return {"senders": self.senders, "outputs": self.outputs, "holds": self.holds}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.senders, self.outputs, self.holds = (tensors[name] for name in ("senders", "outputs", "holds"))
        self._messages = {}
