"""FjORD's clients: ordered dropout by slices of one network's parameters."""

from argparse import Namespace
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedscale_ext.method import ClientSamples, ModelSpec, MultiModelClient, MultiModelExecutor, models, stream
from fedscale_ext.models.registry import skeleton
from fedscale_ext.submodels import leading
from fedscale_ext.training.optimizers import optimizer_of
from fedscale_ext.training.outcome import result
from fedscale_ext.training.scaffold import stacked_offsets

Widths = tuple[tuple[str, int], ...]  # channels by group


def drawn_widths(seed: int, round: int, client: int, choices: int, steps: int) -> list[int]:
    """Which of ``choices`` widths, the widest being 0, each step trains: p ~ U{p <= p_max} (Ordered Dropout)."""
    return stream(seed, round, client, "widths").integers(choices, size=steps).tolist()


class FjordClient(MultiModelClient):
    """Ordered dropout by slices of the parameters of p_max. BatchNorm takes each batch's statistics, whatever its
    width; running ones are those of the steps at p_max alone (the public code keeps some per p).

    Clients train one by one: they draw a width of their own in each step, which no shared pass can have.
    """

    in_cohorts: ClassVar[bool] = False

    def __init__(self, conf: Namespace, spec: ModelSpec | None = None) -> None:
        super().__init__(conf)
        self._spec = spec  # of p_max; None where only to measure how such clients train

    def train(self, client_data: ClientSamples, model: nn.Module, conf: Namespace) -> dict[str, Any]:
        """See :meth:`MultiModelClient.train`; the loss is that which was minimised."""
        widths = [tuple(sorted(each.items())) for each in getattr(conf, "widths", ())]
        if len(widths) < 2 or self._spec is None:
            return super().train(client_data, model, conf)
        model.train()
        drawn = drawn_widths(conf.seed, conf.round, conf.client_id, len(widths), conf.local_steps)
        named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        parameters: list[Tensor] = [parameter for _, parameter in named]
        steps, losses = None, []
        for (x, y), choice in zip(self.seen(client_data, conf), drawn, strict=True):
            own = Narrow(model, self._spec, widths[choice]) if choice else model
            output = self.output(own, x, client_data, conf)
            if choice and conf.distil:
                teacher = self.output(model, x, client_data, conf)
                wanted = teacher.detach().softmax(-1).flatten(0, -2)
                taught = functional.cross_entropy(output.flatten(0, -2), wanted, reduction="none")
                loss = self.losses(teacher, y) + taught
            else:
                loss = self.losses(output, y)
            found = torch.autograd.grad(loss.mean(), parameters, allow_unused=True)
            if steps is None:  # parameters that the network does not use stay as they are
                used = [pair for pair, gradient in zip(named, found, strict=True) if gradient is not None]
                parameters = [parameter for _, parameter in used]
                offset = [tensor[0] for tensor in stacked_offsets([conf], [name for name, _ in used])]
                steps = optimizer_of(conf).begin(parameters, offset)
            steps.step(parameters, [gradient for gradient in found if gradient is not None])
            losses.append(loss.detach())
        return {**result(conf, len(client_data), losses), "update_weight": model.state_dict()}


@lru_cache(maxsize=256)
def _skeleton(spec: ModelSpec, widths: Widths) -> tuple[nn.Module, Mapping[str, tuple[slice, ...]]]:
    return skeleton(models.resized(spec, dict(widths))), leading(models.layout(spec), dict(widths))


class Narrow:
    """The network of the leading channels of ``model``: a function of a batch, differentiable in its parameters."""

    def __init__(self, model: nn.Module, spec: ModelSpec, widths: Widths) -> None:
        self._module, slices = _skeleton(spec, widths)
        self._tensors = {name: tensor[slices[name]] for name, tensor in model.named_parameters()}
        # copies, which training mode may change: a width's statistics are not the whole model's
        self._tensors |= {name: tensor[slices[name]].clone() for name, tensor in model.named_buffers()}

    def __call__(self, x: Tensor) -> Tensor:
        """[B, C, H, W] -> [B, classes]."""
        output: Tensor = functional_call(self._module, self._tensors, (x,))
        return output


class FjordExecutor(MultiModelExecutor):
    """Its clients are told the spec that they train."""

    def get_client_trainer(self, conf: Namespace) -> MultiModelClient:
        """How FjORD's clients train."""
        return FjordClient(conf)

    def training_handler(self, client_id: int, conf: Namespace, model: str) -> dict[str, Any]:
        """One client on the resident module of its p_max."""
        return self.worker.train_client(model, FjordClient(conf, self.bench.spec(model)), conf)
