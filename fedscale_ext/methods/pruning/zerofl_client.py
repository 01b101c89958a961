"""ZeroFL's clients: SWAT's sparse passes, and what of the trained model is handed in (Qiu et al., ICLR 2022).

SWAT: the forward pass takes each layer's largest weights; the gradient of its input is by these, that of its weights by
its largest inputs, and goes to all weights. So a weight that is left out in one step can come back in the next.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import ClientSamples, MultiModelClient, MultiModelExecutor
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result

_Layer = nn.Conv1d | nn.Conv2d | nn.Linear


def kept(entries: int, share: float) -> int:
    """How many of a tensor's entries are kept: ``share`` of them, one at least."""
    return max(1, round(share * entries))


def largest(x: Tensor, share: float) -> Tensor:
    """bool like ``x``: its largest entries in magnitude, as many as :func:`kept` says."""
    chosen = torch.zeros(x.numel(), dtype=torch.bool, device=x.device)
    chosen[x.detach().abs().flatten().topk(kept(x.numel(), share), sorted=False).indices] = True
    return chosen.view(x.shape)


def sparse_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights that are sparse, by state name."""
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
        wanted = [part for part, needed in zip((x, weight), ctx.needs_input_grad, strict=False) if needed]
        with torch.enable_grad():  # a product's derivatives: by x from the weight, by the weight from x
            output = ctx.product(x, weight)
        found = iter(torch.autograd.grad(output, wanted, gradients[0]))
        by_x, by_weight = (next(found) if needed else None for needed in ctx.needs_input_grad[:2])
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
    """Let convolutions and linear layers leave out ``sparsity`` of their weights and inputs in the block."""
    layers = [part for part in model.modules() if isinstance(part, _Layer)]
    for layer in layers:
        layer.forward = partial(_apply, layer, 1 - sparsity)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward  # the class's own again


@torch.no_grad()
def hand_in(before: Mapping[str, Tensor], weights: Mapping[str, Tensor], upload: str, share: float) -> None:
    """Leave of the trained ``weights`` what is handed in, in place; ``before``: as they were handed out."""
    for name, weight in weights.items():
        if upload == "top_k_weights":
            weight.masked_fill_(~largest(weight, share), 0.0)
        else:
            sent = largest(weight if upload == "diff_on_top_k" else weight - before[name], share)
            weight.copy_(torch.where(sent, weight, before[name]))


class ZeroFLClient(MultiModelClient):
    """Trains by SWAT's passes; ``conf.zerofl`` has ``sparsity``, ``upload`` and ``share``. One client after another:
    what is largest is each one's own."""

    in_cohorts: ClassVar[bool] = False

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; the result has the weights that are handed in."""
        model.train()
        asked = conf.zerofl
        sparse = sparse_weights(model)
        before = {name: weight.detach().clone() for name, weight in sparse.items()}
        parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
        steps, found = None, []
        with swat(model, asked["sparsity"]):
            for x, y in self.seen(client_data, conf):
                losses = self.losses(self.output(model, x, client_data, conf), y)
                gradients = torch.autograd.grad(losses.mean(), parameters, allow_unused=True)
                if steps is None:  # parameters that the network does not use stay as they are
                    used = [pair for pair in zip(parameters, gradients, strict=True) if pair[1] is not None]
                    parameters, gradients = [one for one, _ in used], tuple(gradient for _, gradient in used)
                    steps = optimizer_of(conf).begin(parameters)
                steps.step(parameters, list(gradients))
                found.append(losses.detach())
        figures = result(conf, len(client_data), found)
        hand_in(before, sparse, asked["upload"], asked["share"])
        return {**figures, "update_weight": model.state_dict()}


class ZeroFLExecutor(MultiModelExecutor):
    """Its clients train sparsely in rounds, and fine-tune like anybody's."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How ZeroFL's clients train."""
        return ZeroFLClient(conf) if hasattr(conf, "zerofl") else MultiModelClient(conf)
