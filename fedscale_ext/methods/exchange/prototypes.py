"""Clients that learn towards a vector of each class: FedProto and FedTGP, whose vectors are prototypes, and FedL2G."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedscale_ext.method import (
    Bench,
    ClientConfig,
    ClientSamples,
    ModelSpec,
    MultiModelExecutor,
    NotNegative,
    Population,
    State,
    Task,
)
from fedscale_ext.methods.exchange.client import (
    COUNTS,
    NearestPrototype,
    TensorExchangeClient,
    class_means,
)
from fedscale_ext.methods.exchange.tensor_exchange import FeaturesParams, SharedFeaturesAggregator
from fedscale_ext.models.final_layer import final_layer

PROTOTYPES, KNOWN = (
    "prototypes",
    "classes",
)  # of the message: vectors [known, F] and their classes int32 [known], or all


class SendsPrototypes(TensorExchangeClient):
    """Client that sends the mean features of each of its classes."""

    def sent(self, model: nn.Module, data: ClientSamples, conf: ClientConfig) -> State:
        """The client's prototypes [classes, F] of its trained model, and its samples of each class."""
        features, logits = self.features_and_logits(model, data.x, conf)
        means, counts = class_means(features, data.y, logits.shape[1])
        return {PROTOTYPES: means, COUNTS: counts}


class GuidedClient(TensorExchangeClient):
    """Client whose features are drawn to a vector of each sample's class, which the server sent."""

    taps_features = True

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 0.0))
        self._tables: tuple[Tensor, Tensor] | None = None

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy plus the weighted mean squared distance to the vector of the sample's class, [...]."""
        return self.guided(self.losses(output, labels), features, labels, output.shape[-1])

    def guided(self, losses: Tensor, features: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Add the weighted distances of features [..., F] to losses [...]."""
        if not self.knows_vectors:
            return losses
        vectors, known = self.vectors(classes, features)
        distances = (features - vectors[labels]).square().mean(-1)
        return losses + self._weight * torch.where(known[labels], distances, 0.0)

    @property
    def knows_vectors(self) -> bool:
        """Whether the server sent the vector of any class."""
        return len(self.message.get(PROTOTYPES, ())) > 0

    def vectors(self, classes: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of all classes [classes, F], zero where there is none, and which there are, bool [classes]."""
        if self._tables is None:
            rows = self.message[PROTOTYPES]
            numbers = self.message[KNOWN].long() if KNOWN in self.message else torch.arange(classes)
            vectors = like.new_zeros(classes, rows.shape[1])
            vectors[numbers] = rows.to(like)
            known = torch.zeros(classes, dtype=torch.bool, device=like.device)
            known[numbers] = True
            self._tables = vectors, known
        return self._tables


class PrototypeClient(GuidedClient, SendsPrototypes):
    """Client whose features are drawn to the global prototypes, and which may predict by them."""

    def predictor(self, model: nn.Module, conf: ClientConfig) -> nn.Module:
        """The model, or the nearest global prototype, as soon as there is one."""
        if conf.objective.get("predict") != "prototype" or not self.knows_vectors:
            return model
        weight = model.get_submodule(self.layer).weight
        assert isinstance(weight, Tensor)
        return NearestPrototype(model, self.layer, *self.vectors(len(weight), weight.detach()))


class PrototypeExecutor(MultiModelExecutor):
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
        super().init_state(population, task)
        self.known = torch.zeros(task.num_classes, dtype=torch.bool)
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
