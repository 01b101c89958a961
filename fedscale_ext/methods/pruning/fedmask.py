"""FedMask (Li et al., SenSys 2021): weights stay as they were drawn; clients learn and exchange binary masks of them.

No public code is known. This follows the paper as specs of the baselines sum it up, and decides what that leaves open.

* In its first round a client prunes channels once, to its type's number of each group. It keeps those whose weights
  matter most to the loss of its first batch, by |w dL/dw|. Masks are learnt within that structure.
* A weight counts where sigma(s) > tau. A client's scores begin each round at logit(tau) + 1 or - 1, by the server's
  bits. They learn with a rate ``lr`` of their own by the straight-through gradient, without the job's rate, its decay,
  or weight decay. Devices keep no scores.
* The server takes the mean of each bit over the participants whose structures hold it. The new bit is whether the mean
  is above tau. A client is served W with the mask that it learnt last, within its structure.
* Biases and what BatchNorm learns stay as drawn. Its statistics are each client's own (the global model that is tested
  beside has their mean).

W follows from the seed and never travels. Traffic counts a bit for each weight of the structure, in both directions. In
a client's first round all weights count on the way down, and a bit for each channel on the way up. MACs are those of
the structure, and in a client's first round those of the batch by which it prunes the whole model. What both sides
really exchange here is dense.

Paper to code, section by section: docs/methods/pruning.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.method import (
    GLOBAL,
    About,
    ClientSamples,
    Excludes,
    Feature,
    ModelSpec,
    MultiModelClient,
    OpenFraction,
    Population,
    Positive,
    State,
    Task,
    WorkItem,
    models,
)
from fedscale_ext.methods.pruning import channels, masks
from fedscale_ext.methods.pruning.masked_client import initial_weights, trainable
from fedscale_ext.methods.pruning.pruned_types import (
    PrunedTypesAggregator,
    PrunedTypesParams,
    channels_of,
    pack_channels,
    step_fractions,
)
from fedscale_ext.models.registry import skeleton
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.outcome import result


@dataclass(frozen=True)
class FedMaskParams(PrunedTypesParams):
    """Hyperparameters of FedMask.

    Attributes:
        param_ratio: Share of the model's parameters in the structure of each type.
        threshold: Threshold tau of the scores, and of the mean of the clients' bits.
        lr: Learning rate of the scores. The job's `learning_rate` is not read.

    """

    threshold: OpenFraction = 0.5
    lr: Positive = 100.0

    method: ClassVar[str] = "fedmask"


_DEFAULTS = {"threshold": FedMaskParams.threshold, "lr": FedMaskParams.lr}  # where only speed is measured


class MaskClient(MultiModelClient):
    """Client that learns a mask of frozen weights.

    ``conf.client_state`` has the client's mask in bits, the channels that it may use, and BatchNorm's statistics
    (empty before its first round: all channels). ``conf.objective["fedmask"]`` has the ``threshold`` tau, the scores'
    learning rate ``lr``, and in a round the ``target`` number of channels of each group. Clients train one after
    another, each with scores of its own.
    """

    in_cohorts: ClassVar[bool] = False

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model`` the client's: W * m_c with its own statistics."""
        if not conf.client_state:
            return
        self._take_masked(model, conf, masks.unpack(conf.client_state, masks.prunable(trainable(model))))

    def begin(self, model: nn.Module, conf: ClientConfig) -> None:
        """Make ``model``, as it was sent, W where the server's bits count within the client's structure."""
        if conf.client_state is not None:
            self._take_masked(model, conf, _counting(masks.prunable(trainable(model))))

    def _take_masked(self, model: nn.Module, conf: ClientConfig, bits: State) -> None:
        """Make ``model`` W where ``bits`` count within the client's structure, with its own statistics."""
        parameters = trainable(model)
        self._draw(parameters, conf)
        masks.apply(bits, parameters)
        masks.apply(channels.masks(self._layout(conf), channels_of(conf, self.bench), parameters), parameters)
        self._take_statistics(model, conf)

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Learn scores of the weights by the straight-through gradient dL/ds = dL/dw W sigma'(s).

        Scores begin one above or below the threshold, as the server's bits say. In fine-tuning the client's mask says
        so, with which it is served.
        """
        layout, parameters = self._layout(conf), trainable(model)
        settings = conf.objective.get("fedmask", _DEFAULTS)
        threshold, in_round = settings["threshold"], "target" in settings
        middle = math.log(threshold / (1 - threshold))
        weights = masks.prunable(parameters)
        bits = _counting(weights)
        if conf.client_state and not in_round:
            bits = masks.unpack(conf.client_state, weights)
        self._draw(parameters, conf)
        drawn = {name: weight.detach().clone() for name, weight in weights.items()}
        model.train()
        first = conf.client_state is not None and not conf.client_state and in_round
        active = self._tailored(client_data, model, conf, drawn) if first else channels_of(conf, self.bench)
        self._take_statistics(model, conf)
        inside = channels.masks(layout, active, parameters)
        masks.apply(inside, parameters)
        scores = {name: torch.where(one, middle + 1.0, middle - 1.0).to(drawn[name]) for name, one in bits.items()}
        scores_config = replace(conf, learning_rate=settings["lr"], client_weight_decay=0.0)
        values, trained = list(scores.values()), list(weights.values())
        steps = optimizer_of(scores_config).begin(values, None, [inside[name] for name in scores])
        losses = []
        for x, y in self.seen(client_data, conf):
            self._write_masked(weights, drawn, scores, inside, middle)
            loss = self.losses(self.output(model, x, client_data, conf), y)
            gradients = torch.autograd.grad(loss.mean(), trained, allow_unused=True, materialize_grads=True)
            pairs = zip(gradients, drawn.values(), values, strict=True)
            steps.step(values, [gradient * w * _slope(score) for gradient, w, score in pairs])
            losses.append(loss.detach())
        self._write_masked(weights, drawn, scores, inside, middle)
        figures = result(conf, len(client_data), losses)
        if conf.client_state is not None:
            learnt = masks.pack({name: (score > middle) & inside[name] for name, score in scores.items()})
            statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
            figures["client_state"] = {**pack_channels(active), **learnt, **statistics}
        return {**figures, "update_weight": model.state_dict()}

    @torch.no_grad()
    def _write_masked(self, weights: State, drawn: State, scores: State, inside: State, middle: float) -> None:
        for name, weight in weights.items():
            weight.copy_(torch.where((scores[name] > middle) & inside[name], drawn[name], 0.0))

    def _tailored(self, data: ClientSamples, model: nn.Module, conf: ClientConfig, drawn: State) -> channels.Active:
        """Choose the one-shot structure: the channels whose weights matter most to the first batch's loss, by |w
        dL/dw|."""
        weights = masks.prunable(trainable(model))
        x, y = next(self.seen(data, conf))
        statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
        loss = self.losses(self.output(model, x, data, conf), y).mean()
        gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True, materialize_grads=True)
        for name, buffer in model.named_buffers():
            buffer.copy_(statistics[name])
        mattering = {name: gradient * drawn[name] for name, gradient in zip(weights, gradients, strict=True)}
        return channels.strongest(channels.strength(self._layout(conf), mattering), conf.objective["fedmask"]["target"])

    def _layout(self, conf: ClientConfig) -> models.Layout:
        return models.layout(self.bench.spec(conf.model_key))

    @torch.no_grad()
    def _draw(self, parameters: dict[str, Tensor], conf: ClientConfig) -> None:
        """Write W into the parameters, as the aggregator drew it, so that it need not travel."""
        theta = initial_weights(self.bench.spec(conf.model_key), conf.seed)
        for name, parameter in parameters.items():
            parameter.copy_(theta[name])

    @torch.no_grad()
    def _take_statistics(self, model: nn.Module, conf: ClientConfig) -> None:
        if conf.client_state:
            for name, buffer in model.named_buffers():
                buffer.copy_(conf.client_state[name])


def _counting(weights: Mapping[str, Tensor]) -> State:
    """The bits that the server sends: which weights are not zero."""
    return {name: weight.detach() != 0 for name, weight in weights.items()}


def _slope(score: Tensor) -> Tensor:
    return torch.sigmoid(score) * torch.sigmoid(-score)


@cached_by_spec(1024)
def mask_bytes(spec: ModelSpec) -> int:
    """Bytes of a bit for each weight that has one, tensor by tensor."""
    weights = masks.prunable(dict(skeleton(spec).named_parameters()))
    return sum(-(-weight.numel() // 8) for weight in weights.values())


class FedMaskAggregator(PrunedTypesAggregator):
    """Clients learn which of the model's random weights count, each within a structure of its own (FedMask)."""

    about: ClassVar[About] = About("pruning", 2021)
    Params: ClassVar[type] = FedMaskParams
    Client: ClassVar[type] = MaskClient
    narrowing: ClassVar[str] = "prunes it to its type's channels in its first round"
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "exchanges masks of weights that never change"),
    )

    def init_state(self, population: Population, task: Task) -> None:
        """Create W, with a mask of ones."""
        super().init_state(population, task)
        state = self.pool[GLOBAL].state
        parameters = {name: state[name] for name in models.parameter_names(self.pool[GLOBAL].spec)}
        self._drawn = masks.prunable(parameters)
        self._fixed = {name: tensor for name, tensor in parameters.items() if name not in self._drawn}

    def template(self) -> State:
        """Tensors that a client keeps for itself: active channels, masks, and statistics."""
        ones = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in self._drawn.items()}
        parameters = models.parameter_names(self.pool[GLOBAL].spec)
        statistics = {name: tensor for name, tensor in self.pool[GLOBAL].state.items() if name not in parameters}
        return {**super().template(), **masks.pack(ones), **statistics}

    def test_objective(self) -> Mapping[str, Any]:
        """How clients learn scores, also when they fine-tune."""
        return {"fedmask": {"threshold": self.params.threshold, "lr": self.params.lr}}

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: the mask of its structure."""
        spec, target = self.pool[GLOBAL].spec, self.target(client)
        structure = models.resized(spec, target)
        down = up = mask_bytes(structure)
        compute, training = step_fractions(models.cost(structure), self.pool[GLOBAL].cost)
        if not self.has_trained[client - 1]:
            down, up = mask_bytes(spec), up + self.bit_bytes
            sizes = self.task.step_sizes(client, {})
            first = float(sizes[0] / sizes.sum())  # the batch by which it prunes passes the whole model
            compute, training = compute + first, training + first
        objective = {"fedmask": {**self.test_objective()["fedmask"], "target": target}}
        return WorkItem(
            client, GLOBAL, objective, compute_fraction=compute, training_fraction=training, bytes=down, upload=up
        )

    def covered(self, client: int, client_state: State, state: State) -> Mapping[str, Any]:
        """Entries that a client returns: masks within its structure, and all statistics."""
        inside = channels.masks(self.layout, self.active_channels(client), {name: state[name] for name in self._drawn})
        return {**dict.fromkeys(state), **inside}

    def to_average(self, state: State) -> State:
        """Bits instead of weights, as float64: the products of weights with shares of clients are rounded."""
        return {**state, **{name: one.double() for name, one in _counting({n: state[n] for n in self._drawn}).items()}}

    def averaged(self, mean: State) -> State:
        """Keep a bit where more than tau of the clients that may have it do; what has no mask stays as drawn."""
        counts = {name: mean[name] > self.params.threshold for name in self._drawn}
        kept = {name: torch.where(counts[name], drawn, 0.0) for name, drawn in self._drawn.items()}
        return {**mean, **self._fixed, **kept}  # clients send zeros for channels that they pruned
