"""Prototypes, mean features of classes: clients send theirs and learn towards global ones (FedProto, FedTGP, FedGH)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    ClientConfig,
    ClientSamples,
    ModelSpec,
    NotNegative,
    Population,
    State,
    Task,
)
from fedscale_ext.methods.exchange.class_vectors import VECTORS, GuidedClient
from fedscale_ext.methods.exchange.client import (
    COUNTS,
    KNOWN_CLASSES,
    NearestPrototype,
    TensorExchangeClient,
    class_means,
)
from fedscale_ext.methods.exchange.tensor_exchange import FeaturesParams, SharedFeaturesAggregator
from fedscale_ext.models.layers.final_layer import final_layer

PROTOTYPES = "prototypes"  # name in what a client sends: a row for each class, [classes, F]


class SendsPrototypes(TensorExchangeClient):
    """Client that sends the mean features of each of its classes."""

    def tensors_to_send(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The client's prototypes [classes, F] of its trained model, and its samples of each class."""
        features, logits = self.features_and_logits(model, data.x, conf)
        means, counts = class_means(features, data.y, logits.shape[1])
        return {PROTOTYPES: means, COUNTS: counts}


class PrototypeClient(GuidedClient, SendsPrototypes):
    """Client whose features are drawn to the global prototypes, and which may predict by them."""

    def predictor(self, model: nn.Module, conf: ClientConfig) -> nn.Module:
        """The model, or the nearest global prototype, as soon as there is one."""
        if conf.objective.get("predict") != "prototype" or not self.knows_vectors:
            return model
        weight = model.get_submodule(self.layer).weight
        assert isinstance(weight, Tensor)
        return NearestPrototype(model, self.layer, *self.vectors(len(weight), weight.detach()))


@dataclass(frozen=True)
class PrototypesParams(FeaturesParams):
    """Hyperparameters of methods whose clients learn towards prototypes.

    Attributes:
        weight: Weight lambda of the distance between a sample's features and its class's prototype.
        predict: How a client's model is tested: by the nearest global `prototype`, or by its own `head`.

    """

    weight: NotNegative = 1.0
    predict: Literal["prototype", "head"] = "prototype"


class PrototypesAggregator(SharedFeaturesAggregator):
    """Base of methods whose server keeps a global prototype of each class.

    ``prototypes`` [classes, F]; ``known`` tells which classes have one, bool [classes].
    """

    Client: ClassVar[type] = PrototypeClient

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models; no class has a prototype yet."""
        super().init_state(population, task)
        self.known = torch.zeros(task.num_classes, dtype=torch.bool)
        self.prototypes = torch.zeros(task.num_classes, self.width)

    def template(self, spec: ModelSpec) -> State:
        """Prototypes of all classes, and the client's samples of each."""
        return prototypes_template(spec)

    def message(self) -> State:
        """The prototypes of the classes that have one."""
        classes = self.known.nonzero().flatten()
        return {VECTORS: self.prototypes[classes], KNOWN_CLASSES: classes.int()} if len(classes) else {}

    def objective(self) -> dict[str, Any]:
        """The weight of the distance, and how models are tested."""
        return {"weight": self.params.weight, "predict": self.params.predict}

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the prototypes."""
        return {PROTOTYPES: self.prototypes, "known": self.known}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.prototypes, self.known = tensors[PROTOTYPES], tensors["known"]
        self.publish()


def prototypes_template(spec: ModelSpec) -> State:
    """Zeros like what :class:`SendsPrototypes` sends."""
    classes = spec["num_classes"]
    return {
        PROTOTYPES: torch.zeros(classes, final_layer(spec).width),
        COUNTS: torch.zeros(classes, dtype=torch.int32),
    }


def labelled(sent: Sequence[State]) -> tuple[Tensor, Tensor]:
    """All clients' prototypes [n, F] with their classes int64 [n], client by client."""
    rows = [(each[PROTOTYPES][each[COUNTS] > 0], (each[COUNTS] > 0).nonzero().flatten()) for each in sent]
    return torch.cat([prototypes for prototypes, _ in rows]), torch.cat([classes for _, classes in rows])
