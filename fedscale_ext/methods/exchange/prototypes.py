"""Clients that learn towards prototypes: FedProto and FedTGP."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedscale_ext.method import ClientConfig, ClientSamples, ModelSpec, NotNegative, Population, State, Task
from fedscale_ext.methods.exchange.client import (
    COUNTS,
    KeptModelClient,
    KeptModelExecutor,
    NearestPrototype,
    class_means,
)
from fedscale_ext.methods.exchange.kept_models import FeaturesParams, SharedFeaturesAggregator
from fedscale_ext.models.final_layer import final_layer
from fedscale_ext.tasks.workbench import Workbench

PROTOTYPES, KNOWN = "prototypes", "classes"  # of the message: prototypes [known, F] and their classes int32 [known]


class SendsPrototypes(KeptModelClient):
    """Client that sends the mean features of each of its classes."""

    def sent(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The client's prototypes [classes, F] of its trained model, and its samples of each class."""
        features, logits = self.features_and_logits(model, data.x, conf)
        means, counts = class_means(features, data.y, logits.shape[1])
        return {PROTOTYPES: means, COUNTS: counts}


class PrototypeClient(SendsPrototypes):
    """Client whose features are drawn to the global prototypes, and which may predict by them."""

    taps_features = True

    def __init__(self, conf: ClientConfig, bench: Workbench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 0.0))
        self._tables: tuple[Tensor, Tensor] | None = None

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy plus the weighted mean squared distance to the prototype of the sample's class, [...]."""
        losses = self.losses(output, labels)
        if not len(self.message.get(KNOWN, ())):
            return losses
        prototypes, known = self._table(output.shape[-1], features)
        distances = (features - prototypes[labels]).square().mean(-1)
        return losses + self._weight * torch.where(known[labels], distances, 0.0)

    def _table(self, classes: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Prototypes of all classes [classes, F], zero where there is none, and which there are, bool [classes]."""
        if self._tables is None:
            rows, numbers = self.message[PROTOTYPES], self.message[KNOWN].long()
            prototypes = like.new_zeros(classes, rows.shape[1])
            prototypes[numbers] = rows.to(like)
            known = torch.zeros(classes, dtype=torch.bool, device=like.device)
            known[numbers] = True
            self._tables = prototypes, known
        return self._tables

    def predictor(self, model: nn.Module, conf: ClientConfig) -> nn.Module:
        """The model, or the nearest global prototype, as soon as there is one."""
        if conf.objective.get("predict") != "prototype" or not len(self.message.get(KNOWN, ())):
            return model
        weight = model.get_submodule(self.layer).weight
        assert isinstance(weight, Tensor)
        return NearestPrototype(model, self.layer, *self._table(len(weight), weight.detach()))


class PrototypeExecutor(KeptModelExecutor):
    """Executor of such clients."""

    client = PrototypeClient


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

    Executor: ClassVar[type] = PrototypeExecutor

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models; no class has a prototype yet."""
        self.prototypes = torch.zeros(0)
        self.known = torch.zeros(task.num_classes, dtype=torch.bool)
        super().init_state(population, task)
        self.prototypes = torch.zeros(task.num_classes, self.width)

    def template(self, spec: ModelSpec) -> State:
        """Prototypes of all classes, and the client's samples of each."""
        return prototypes_template(spec)

    def message(self) -> State:
        """The prototypes of the classes that have one."""
        classes = self.known.nonzero().flatten()
        return {PROTOTYPES: self.prototypes[classes], KNOWN: classes.int()} if len(classes) else {}

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
