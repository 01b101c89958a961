"""Fed-ET (Cho et al., IJCAI 2022): small models of several architectures teach a larger one on the server, which gives
back the layer that all of them share.

All models end in a representation of one width and a head (``models/families/headed.py``). A round: clients train the
model of their type; the server averages each type's by samples, gives its own model the mean of the clients' heads,
and trains that on public samples, which need no labels and which clients never see: for ``steps`` batches,
cross-entropy with the consensus's class, and ``diversity`` times KL to what those say who disagree. The consensus is
the mean of the clients' logits of a sample, each weighed by their variance over the classes (sure models count more);
those whose own class differs are the disagreeing ones, with the same weights. Then each type that took part
gets the head of the server's model.

Code of the authors is not public: this follows the paper, with values of a third party's class where it names none.

Paper to code, section by section: docs/methods/distillation.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedscale_ext.method import (
    About,
    Count,
    Fraction,
    ModelSpec,
    NotNegative,
    Population,
    Positive,
    State,
    Task,
    Update,
    count_mean,
)
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.consensus import variance_weights, weighted
from fedscale_ext.methods.distillation.fitting import Fit
from fedscale_ext.methods.distillation.losses import divergence, hard_cross_entropy
from fedscale_ext.methods.distillation.public_models import SERVER, EnsembleAggregator
from fedscale_ext.models.families.headed import HEAD, headed


@dataclass(frozen=True)
class FedETParams(DeviceTypesParams):
    """Hyperparameters of Fed-ET.

    The job's ``model`` is the server's, larger than all types' models.

    Attributes:
        representation: Width of the representation that all models give their heads.
        diversity: Weight lambda of the KL divergence to the outputs of clients that disagree with the consensus.
        steps: Steps of SGD that the server's model takes in a round.
        batch_size: Public samples of a batch of the server.
        lr: Learning rate of the server's model.
        momentum: Momentum of the server's SGD.

    """

    representation: Count = 128
    diversity: NotNegative = 0.05
    steps: Count = 128
    batch_size: Count = 64
    lr: Positive = 5e-3
    momentum: Fraction = 0.0

    method: ClassVar[str] = "fedet"


def ensemble(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted consensus of the clients, and those who disagree with it.

    Args:
        logits: Clients' logits, [clients, n, classes].

    Returns:
        The consensus's classes int64 [n], logits of those who disagree [n, classes], and whether any client does, bool
        [n].

    """
    weights = variance_weights(logits)
    classes = weighted(logits, weights).argmax(-1)
    disagree = logits.argmax(-1) != classes
    return classes, weighted(logits, torch.where(disagree, weights, 0.0)), disagree.any(0)


class FedETAggregator(EnsembleAggregator):
    """Small models of several architectures teach a large one on the server and share its head (Fed-ET)."""

    about: ClassVar[About] = About("distillation", 2022, "public samples")
    Params: ClassVar[type] = FedETParams
    has_server_model: ClassVar[bool] = True

    def type_specs(self) -> dict[str, ModelSpec]:
        """Specs of the types, with heads of one size."""
        return {key: headed(spec, self.params.representation) for key, spec in super().type_specs().items()}

    def initial_spec(self) -> ModelSpec:
        """Spec of the server's model, with a head of that size."""
        return headed(super().initial_spec(), self.params.representation)

    def init_state(self, population: Population, task: Task) -> None:
        """Create models that begin with one head."""
        super().init_state(population, task)
        head = head_of(self.pool[SERVER].state)
        for key in self.keys:
            self.pool.update(key, {**self.pool[key].state, **head})

    def distilled(
        self, round: int, means: Mapping[str, State], logits: Tensor, updates: Sequence[Update]
    ) -> dict[str, State]:
        """Train the server by the weighted consensus with diversity, and return its head to the types that took
        part."""
        p, server = self.params, self.pool[SERVER].state
        classes, others, anybody = ensemble(logits)

        def loss(output: Tensor, at: Tensor) -> Tensor:
            pulled = torch.where(anybody[at], divergence(output, others[at]), 0.0)
            return hard_cross_entropy(output, classes[at]) + p.diversity * pulled

        weights = {key: sum(self.weight(each.item) for each in updates if each.item.model == key) for key in means}
        heads = count_mean(head_of(server), [(head_of(means[key]), None, weights[key]) for key in means])
        how = Fit(lr=p.lr, momentum=p.momentum, batch_size=p.batch_size, steps=p.steps)
        trained = self.train_server(round, {**server, **heads}, self.public.x, loss, how)
        self.record("disagreed", float(anybody.double().mean()))
        return {key: {**state, **head_of(trained)} for key, state in means.items()}


def head_of(state: State) -> State:
    """The tensors of the head that all models share."""
    return {name: state[name] for name in HEAD}
