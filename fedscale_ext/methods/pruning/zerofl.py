"""ZeroFL (Qiu et al., ICLR 2022): clients train with sparse weights and activations and hand in a sparse model.

Training is SWAT's (Raihan and Aamodt, NeurIPS 2020). The forward pass takes each layer's largest weights. The gradient
of its input is by these; that of its weights is by its largest inputs, and goes to all weights. So a weight that one
step leaves out can come back in the next.

A client uploads a share of 1 - sparsity + mask_ratio of each layer's weights (section 4.2):

* ``top_k_weights``: its largest weights, others count as zero in the server's mean;
* ``diff_on_top_k``: the changes of its largest weights, others count as unchanged;
* ``top_k_diff``: its largest changes.

No public code of ZeroFL could be read: what the paper leaves open is decided here. Largest is in magnitude, in each
layer by itself, in all convolutions and linear layers; biases and normalisation are dense. SWAT's public code can leave
the first layer dense, and finds the largest weights anew every ten steps; here each step does. On the virtual clock and
in the cost of a round, devices skip zeros (``skips_zeros``): all three products of a step have one sparse factor, so a
step takes 1 - sparsity of the MACs. An upload counts its values and a bit for each weight; a download is dense. What
both sides really compute and exchange here is dense. What is tested, served and written at the end is the network of
SWAT's forward pass: each layer's largest 1 - sparsity of the weights, the others zero.

Paper to code, section by section: docs/methods/pruning.md.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.method import (
    GLOBAL,
    About,
    Bench,
    ClientSamples,
    EvaluationPlan,
    Excludes,
    Feature,
    Fraction,
    FractionBelowOne,
    MultiModelClient,
    Population,
    State,
    Task,
    WorkItem,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.pruning import masks
from fedscale_ext.models.registry import skeleton
from fedscale_ext.training.optimizers.choice import optimizer_of
from fedscale_ext.training.outcome import result

_Layer = nn.Conv1d | nn.Conv2d | nn.Linear


@dataclass(frozen=True)
class ZeroFLParams:
    """Hyperparameters of ZeroFL.

    A client uploads a share of 1 - sparsity + mask_ratio of each layer's weights (section 4.2).

    Attributes:
        sparsity: Share of each layer's weights and activations that a step leaves out. The paper has 0.9 and 0.95.
        upload: Weights that a client uploads: its largest, the changes of its largest (``diff_on_top_k``), or its
            largest changes (``top_k_diff``).
        mask_ratio: Share of the weights that is uploaded beyond 1 - sparsity. The paper has 0, 0.1 and 0.2.
        skips_zeros: Devices compute faster for the zeros, on the virtual clock and in MACs.

    """

    sparsity: FractionBelowOne = 0.9
    upload: Literal["top_k_weights", "diff_on_top_k", "top_k_diff"] = "top_k_weights"
    mask_ratio: Fraction = 0.1
    skips_zeros: bool = True

    @property
    def share(self) -> float:
        """Share of a layer's weights that a client uploads."""
        return min(1.0, 1 - self.sparsity + self.mask_ratio)


def largest(x: Tensor, share: float) -> Tensor:
    """The largest entries of ``x`` in magnitude, as many as :func:`masks.num_largest` says: bool like ``x``."""
    chosen = torch.zeros(x.numel(), dtype=torch.bool, device=x.device)
    chosen[x.detach().abs().flatten().topk(masks.num_largest(x.numel(), share), sorted=False).indices] = True
    return chosen.view(x.shape)


def sparse_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that SWAT makes sparse, by state name."""
    return {f"{name}.weight": part.weight for name, part in model.named_modules() if isinstance(part, _Layer)}


class _Sparse(torch.autograd.Function):
    """``product(x, weight)``, a layer without its bias, by SWAT's rule."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, share: float, product: Callable[..., Tensor]) -> Tensor:
        sparse = torch.where(largest(weight, share), weight, 0.0)
        ctx.save_for_backward(torch.where(largest(x, share), x, 0.0), sparse)
        ctx.product = product
        return product(x, sparse)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        operands = [part for part, needed in zip((x, weight), ctx.needs_input_grad, strict=False) if needed]
        with torch.enable_grad():  # a product's derivatives: by x from the weight, by the weight from x
            output = ctx.product(x, weight)
        gradients_of_operands = iter(torch.autograd.grad(output, operands, gradients[0]))
        by_x, by_weight = (next(gradients_of_operands) if needed else None for needed in ctx.needs_input_grad[:2])
        return by_x, by_weight, None, None


def _product(layer: _Layer, x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return nn.functional.linear(x, weight)
    return layer._conv_forward(x, weight, None)


def _apply(layer: _Layer, share: float, x: Tensor) -> Tensor:
    output: Tensor = _Sparse.apply(x, layer.weight, share, partial(_product, layer))
    if layer.bias is None:
        return output
    return output + layer.bias.view(-1, *[1] * (0 if isinstance(layer, nn.Linear) else layer.weight.dim() - 2))


@contextmanager
def swat(model: nn.Module, sparsity: float) -> Iterator[None]:
    """Leave out ``sparsity`` of the weights and inputs of convolutions and linear layers, in the block."""
    layers = [part for part in model.modules() if isinstance(part, _Layer)]
    for layer in layers:
        layer.forward = partial(_apply, layer, 1 - sparsity)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class's own again


@torch.no_grad()
def reduce_upload(before: Mapping[str, Tensor], weights: Mapping[str, Tensor], upload: str, share: float) -> None:
    """Reduce the trained ``weights`` to the uploaded ones, in place (section 4.2).

    Args:
        before: Weights at the round's start, by name.
        weights: Trained weights, by name.
        upload: Which weights a client uploads.
        share: Share of each layer's weights.

    """
    for name, weight in weights.items():
        if upload == "top_k_weights":
            weight.masked_fill_(~largest(weight, share), 0.0)
        else:
            sent = largest(weight if upload == "diff_on_top_k" else weight - before[name], share)
            weight.copy_(torch.where(sent, weight, before[name]))


class ZeroFLClient(MultiModelClient):
    """Client that trains by SWAT's passes.

    ``conf.objective["zerofl"]`` has ``sparsity``, ``upload`` and ``share``. Clients train one
    after another: each has largest entries of its own.
    """

    in_cohorts: ClassVar[bool] = False

    def train(self, client_data: ClientSamples, model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Train by SWAT's passes; the result has the uploaded weights. See :meth:`MultiModelClient.train`."""
        model.train()
        settings = conf.objective["zerofl"]
        sparse = sparse_weights(model)
        before = {name: weight.detach().clone() for name, weight in sparse.items()}
        parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        steps, step_losses = None, []
        with swat(model, settings["sparsity"]):
            for x, y in self.seen(client_data, conf):
                losses = self.losses(self.output(model, x, client_data, conf), y)
                gradients = torch.autograd.grad(losses.mean(), parameters, allow_unused=True)
                if steps is None:  # parameters that the network does not use stay as they are
                    used = [pair for pair in zip(parameters, gradients, strict=True) if pair[1] is not None]
                    parameters, gradients = [one for one, _ in used], tuple(gradient for _, gradient in used)
                    steps = optimizer_of(conf).begin(parameters)
                steps.step(parameters, list(gradients))
                step_losses.append(losses.detach())
        figures = result(conf, len(client_data), step_losses)
        reduce_upload(before, sparse, settings["upload"], settings["share"])
        return {**figures, "update_weight": model.state_dict()}


class ZeroFLAggregator(FedAvgAggregator):
    """FedAvg with sparse training and sparse uploads (ZeroFL)."""

    about: ClassVar[About] = About("pruning", 2022)
    Params: ClassVar[type] = ZeroFLParams
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "uploads only a part of what its clients learned"),
    )

    @staticmethod
    def Client(conf: ClientConfig, bench: Bench) -> MultiModelClient:
        """Create a client that trains by SWAT's passes in rounds, or one that fine-tunes like FedAvg's."""
        return (ZeroFLClient if "zerofl" in conf.objective else MultiModelClient)(conf, bench)

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0, and compute the size of a sparse upload."""
        super().init_state(population, task)
        cost = self.pool[GLOBAL].cost
        sizes = [weight.numel() for weight in sparse_weights(skeleton(self.pool[GLOBAL].spec)).values()]
        values = sum(masks.num_largest(size, self.params.share) for size in sizes)
        dense = next(iter(self.pool[GLOBAL].state.values())).itemsize
        self._dense: State = {}  # what trains on, while the pool has the network that is tested
        self._upload = cost.bytes - (sum(sizes) - values) * dense + sum(-(-size // 8) for size in sizes)

    @property
    def _compute_fraction(self) -> float:
        """MACs of a step, relative to those of dense training."""
        return 1 - self.params.sparsity if self.params.skips_zeros else 1.0

    def report_clients_beyond_capacity(self) -> None:
        """Report the clients that do not afford what is left of the model where devices skip zeros."""
        self.report_weak(
            self.pool[GLOBAL].cost.forward_macs * self._compute_fraction, "they would train it all the same"
        )

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let S_t train sparsely, from the dense weights."""
        p = self.params
        if self._dense:
            self.pool.update(GLOBAL, self._dense)
            self._dense = {}
        objective = {"zerofl": {"sparsity": p.sparsity, "upload": p.upload, "share": p.share}}
        upload = min(self._upload, self.pool[GLOBAL].cost.bytes)
        fraction, clients = self._compute_fraction, participants.tolist()
        return [WorkItem(client, GLOBAL, objective, compute_fraction=fraction, upload=upload) for client in clients]

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve the weights of SWAT's forward pass to every client."""
        if not self._dense:
            model = self.pool[GLOBAL]
            self._dense, share = model.state, 1 - self.params.sparsity
            names = sparse_weights(skeleton(model.spec))
            sparse = {name: torch.where(largest(self._dense[name], share), self._dense[name], 0.0) for name in names}
            self.pool.update(GLOBAL, {**self._dense, **sparse})
        return super().evaluation_plan()

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the dense weights, which a test replaces in the pool."""
        return self._dense, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._dense = tensors
