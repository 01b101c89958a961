"""FjORD (Horvath et al., NeurIPS 2021): ordered dropout at the clients.

In each step a client draws a share p of the channels, up to the p_max that its device affords. It trains the leading
channels of that share, by slices of one network's parameters. Each entry becomes the mean over the clients whose p_max
covers it.

Departures from the paper and the public code:

* Running BatchNorm statistics are only those of the steps at p_max. The public code keeps some for each p.

Paper to code, section by section: docs/methods/width.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.method import (
    About,
    ClientSamples,
    EvaluationPlan,
    ModelSpec,
    MultiModelClient,
    WorkItem,
    models,
    stream,
)
from fedscale_ext.methods.submodel.capacity_levels import (
    LevelsParams,
    RatesAggregator,
    check_rates,
    check_shares,
)
from fedscale_ext.models.registry import skeleton
from fedscale_ext.submodels import leading, widths_at
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.outcome import result
from fedscale_ext.training.scaffold import stacked_offsets

Widths = tuple[tuple[str, int], ...]  # channels by group


@dataclass(frozen=True)
class FjordParams(LevelsParams):
    """Hyperparameters of FjORD.

    Attributes:
        p: Rates of channels that clients draw from, up to their p_max.
        levels: ``capacity`` makes a client's p_max the largest rate whose MACs it affords. ``groups`` gives
            each p_max to as many clients as ``groups`` says; it is the default where ``groups`` is given. ``fix`` draws
            it once from ``shares`` among the affordable ones (the paper's tiers, which are uniform).
        groups: Clients of each rate, smallest rate first, in the order of ``groups_by``.
        shares: Shares of the rates that ``levels: fix`` draws from, largest rate first.
        distil: In each step, the model of p_max learns from the labels and teaches the drawn one (self-distillation).
        each_width: The model of every p is also tested on all test samples.

    """

    p: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)
    distil: bool = False
    each_width: bool = False

    method: ClassVar[str] = "fjord"

    def __post_init__(self) -> None:
        check_rates("fjord.p", self.p)
        check_shares("fjord.shares", self.shares, len(self.p))
        super().__post_init__()


def drawn_widths(seed: int, round: int | str, client: int, choices: int, steps: int) -> list[int]:
    """The width that each step trains, p ~ U{p <= p_max} (Ordered Dropout).

    Args:
        seed: The job's seed.
        round: The round.
        client: Number of the client.
        choices: Number of widths up to p_max.
        steps: Number of steps.

    Returns:
        An index for each step; 0 is the widest.

    """
    return stream(seed, round, client, "widths").integers(choices, size=steps).tolist()


class FjordClient(MultiModelClient):
    """Client that trains by ordered dropout: slices of the parameters of p_max.

    BatchNorm takes each batch's statistics, whatever its width. Running ones are only those of the steps at p_max (the
    public code keeps some per p). Clients train one by one: each draws its own widths, which no shared pass can have.
    """

    in_cohorts: ClassVar[bool] = False

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train by ordered dropout; see :meth:`MultiModelClient.train`. The reported loss is the minimised one."""
        widths = [tuple(sorted(each.items())) for each in conf.objective.get("widths", ())]
        if len(widths) < 2:  # the narrowest p_max, or a measurement of speed, whose clients have no objective
            return super().train(client_data, model, conf)
        model.train()
        spec = self.bench.spec(conf.model_key)  # of p_max
        drawn = drawn_widths(conf.seed, conf.round, conf.client_id, len(widths), conf.local_steps)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        parameters: list[Tensor] = [parameter for _, parameter in named]
        steps, losses = None, []
        for (x, y), choice in zip(self.seen(client_data, conf), drawn, strict=True):
            network = narrow(model, spec, widths[choice]) if choice else model
            output = self.output(network, x, client_data, conf)
            if choice and conf.objective["distil"]:
                teacher = self.output(model, x, client_data, conf)
                probabilities = teacher.detach().softmax(-1).flatten(0, -2)
                taught = functional.cross_entropy(output.flatten(0, -2), probabilities, reduction="none")
                loss = self.losses(teacher, y) + taught
            else:
                loss = self.losses(output, y)
            gradients = torch.autograd.grad(loss.mean(), parameters, allow_unused=True)
            if steps is None:  # parameters that the network does not use stay as they are
                used = [pair for pair, gradient in zip(named, gradients, strict=True) if gradient is not None]
                parameters = [parameter for _, parameter in used]
                offset = [tensor[0] for tensor in stacked_offsets([conf], [name for name, _ in used])]
                steps = optimizer_of(conf).begin(parameters, offset)
            steps.step(parameters, [gradient for gradient in gradients if gradient is not None])
            losses.append(loss.detach())
        return {**result(conf, len(client_data), losses), "update_weight": model.state_dict()}


@cached_by_spec(256)
def _skeleton(spec: ModelSpec, widths: Widths) -> tuple[nn.Module, Mapping[str, tuple[slice, ...]]]:
    return skeleton(models.resized(spec, dict(widths))), leading(models.layout(spec), dict(widths))


def narrow(model: nn.Module, spec: ModelSpec, widths: Widths) -> Callable[[Tensor], Tensor]:
    """The network of the leading channels of ``model``: a function of a batch, differentiable in its parameters."""
    module, slices = _skeleton(spec, widths)
    tensors = {name: tensor[slices[name]] for name, tensor in model.named_parameters()}
    # Copies, which training mode may change: a width's statistics are not the whole model's. A buffer that is no
    # part of the state has no axes, and stays whole.
    tensors |= {name: tensor[slices.get(name, ...)].clone() for name, tensor in model.named_buffers()}
    return partial(functional_call, module, tensors)


class FjordAggregator(RatesAggregator):
    """Every batch trains another share of the leading channels, up to what the device affords (FjORD).

    The public code overwrites, with p falling, the leading blocks by the example-weighted mean of the clients with
    p_max >= p. What an entry is left with is the mean of the smallest p whose block holds it, thus over all clients
    whose p_max covers it: the count-mean of the base.
    """

    about: ClassVar[About] = About("width", 2021)
    Params: ClassVar[type] = FjordParams
    Client: ClassVar[type] = FjordClient

    @property
    def rates(self) -> list[float]:
        """Values of p, largest first."""
        return sorted(self.params.p, reverse=True)

    def objective(self, level: int) -> dict[str, Any]:
        """The widths up to p_max, widest first, and whether the widest teaches."""
        spec = self.pool[self.whole].spec
        return {"widths": [widths_at(spec, rate) for rate in self.rates[level:]], "distil": self.params.distil}

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client, with the mean MACs of the widths that its steps draw."""
        level = int(self.level_of[client - 1])
        macs = self._macs_of_steps(level)
        return _charged(self.item_at(client, level), macs, macs[0])

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its p_max; with ``each_width``, test the model of every p, too."""
        plan = super().evaluation_plan()
        if not self.params.each_width:
            return plan
        widths = {f"p{rate:g}": key for rate, key in zip(self.rates, self.keys, strict=True)}
        return EvaluationPlan(plan.serve, {**plan.named, **widths})

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train widths up to its p_max; its MACs are those of the steps that it will draw."""
        items = super().assign(round, participants)
        return [self._with_drawn_widths(round, item) for item in items]

    def _with_drawn_widths(self, round: int, item: WorkItem) -> WorkItem:
        macs = self._macs_of_steps(self.keys.index(item.model))
        sizes = self.task.step_sizes(item.client, item.overrides)
        drawn = drawn_widths(self.seed, round, item.client, len(macs), len(sizes))
        return _charged(item, macs[drawn], macs[0], sizes)

    def _macs_of_steps(self, level: int) -> np.ndarray:
        """MACs of a step at each width up to a level's, widest first: float64 [widths, 2], forward, and with the
        backward pass.

        Where the widest teaches, it counts beside each narrower one.
        """
        costs = [self.pool[key].cost for key in self.keys[level:]]
        macs = np.array([(cost.forward_macs, cost.training_macs) for cost in costs], dtype=np.float64)
        macs[1:] += macs[0] * self.params.distil
        return macs


def _charged(item: WorkItem, steps: np.ndarray, widest: np.ndarray, sizes: np.ndarray | None = None) -> WorkItem:
    """The item with the mean MACs of ``steps``, float64 [steps, 2], on batches of ``sizes``, as shares of the widest
    step's."""
    compute, training = (np.average(steps, axis=0, weights=sizes) / widest).tolist()
    return replace(item, compute_fraction=compute, training_fraction=training)
