"""The student's losses on batches of public data, and what a teacher answers on them (Moss, Eqs. 5 and 8)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State
from fedscale_ext.methods.moss import matching
from fedscale_ext.methods.moss.matching import MapTargets
from fedscale_ext.models.layers.dropout import DrawnFrom
from fedscale_ext.models.layers.final_layer import deepest
from fedscale_ext.models.registry import parameter_names, skeleton
from fedscale_ext.models.taps import as_map, features
from fedscale_ext.tasks import bn_statistics

_OBSERVED = 64  # samples at once where nothing is learnt


@dataclass(frozen=True)
class Observed:
    """A teacher's logits [N, classes] and tapped maps [N, C, H, W] on the public samples, in evaluation."""

    logits: Tensor
    maps: tuple[Tensor, ...]


def observe(spec: ModelSpec, state: State, x: Tensor, names: tuple[str, ...]) -> Observed:
    """Run a teacher on samples x [N, C, H, W] in evaluation: its logits and the maps of the layers ``names``."""
    module, tensors = skeleton(spec).eval(), _cast(state, x)
    with torch.no_grad():
        outputs = [_outputs(module, part, names, tensors) for part in x.split(_OBSERVED)]
    maps = tuple(torch.cat([parts[index] for _, parts in outputs]) for index in range(len(names)))
    return Observed(torch.cat([logits for logits, _ in outputs]), maps)


def _outputs(module: nn.Module, x: Tensor, names: Sequence[str], state: State) -> tuple[Tensor, list[Tensor]]:
    """Logits [B, classes] (the deepest exit's) and tapped maps, each [B, C, H, W], of samples x [B, C, H, W]."""
    if not names:  # logits alone need no taps
        logits: Tensor = functional_call(module, state, (x,))
        return deepest(logits, 2), []
    logits, outputs = features(module, x, names, state)
    return logits, [as_map(each, x.shape[2] / x.shape[3]) for each in outputs.values()]


@dataclass(frozen=True)
class Batch:
    """Public samples of one step, with what the student is to answer and to match on them."""

    x: Tensor  # [B, C, H, W]
    target: Tensor  # classes int64 [B], or probabilities [B, classes]
    maps: MapTargets  # of the student's tapped layers
    means: tuple[Tensor, ...]  # by m: the teacher's channels' means [B, C_m]


class Student:
    """The student's losses as functions of its parameters; its dropout draws from ``generator``."""

    def __init__(
        self, spec: ModelSpec, names: tuple[str, ...], state: State, like: Tensor, generator: torch.Generator
    ) -> None:
        """Begin at ``state``, with the type and on the device of ``like``."""
        self.module, self.names, tensors = skeleton(spec).train(), names, _cast(state, like)
        self._generator = generator
        self.parameters = {name: tensors[name] for name in parameter_names(spec)}
        self.buffers = {name: each.clone() for name, each in tensors.items() if name not in self.parameters}

    def losses(self, theta: State, weights: Tensor | None, batch: Batch) -> tuple[Tensor, Tensor, State]:
        """The losses of a batch as functions of the student's parameters and r.

        Args:
            theta: The student's parameters and r, by name.
            weights: Loc * Deg of all pairs, [N, B, sum of C_m]; None without L_loc.
            batch: The samples.

        Returns:
            CE, L_loc without beta (Eq. 5; zero without weights), 0-d each, and the buffers after the pass.

        """
        buffers = {name: each.clone() for name, each in self.buffers.items()}
        state = {**{name: theta[name] for name in self.parameters}, **buffers}
        with DrawnFrom(self._generator):
            logits, maps = _outputs(self.module, batch.x, () if weights is None else self.names, state)
        ce = functional.cross_entropy(logits, batch.target)
        if weights is None:
            return ce, torch.zeros_like(ce), buffers
        return ce, (weights * matching.errors(theta, maps, batch.maps)).sum() / len(batch.x), buffers

    def maps(self, x: Tensor, batch_size: int) -> list[Tensor]:
        """Tapped maps of all samples, as steps on batches of at most ``batch_size`` would see them.

        Args:
            x: Samples [N, C, H, W].
            batch_size: Largest batch.

        Returns:
            Maps [N, C_n, H, W] by n.

        """
        parts = []
        with torch.no_grad(), DrawnFrom(self._generator):
            for part in x.tensor_split(math.ceil(len(x) / batch_size)):
                buffers = {name: each.clone() for name, each in self.buffers.items()}
                parts.append(_outputs(self.module, part, self.names, {**self.parameters, **buffers})[1])
        return [torch.cat(each) for each in zip(*parts, strict=True)]


def reestimated(spec: ModelSpec, state: State, x: Tensor, batch_size: int) -> State:
    """Re-estimate BatchNorm's running statistics on samples.

    Args:
        spec: The model.
        state: Its state.
        x: Samples [N, C, H, W].
        batch_size: Largest batch.

    Returns:
        The state with the new statistics.

    """
    if not bn_statistics.layers(state):
        return state
    module = models.build(spec).to(x.device, x.dtype)
    module.load_state_dict(state)
    seen = bn_statistics.sums(module, x.tensor_split(math.ceil(len(x) / batch_size)))
    return bn_statistics.with_statistics(state, seen)


def _cast(state: State, like: Tensor) -> State:
    """The state on the device of ``like``, its floating-point tensors with that type."""
    device, dtype = like.device, like.dtype
    return {name: each.to(device, dtype if each.is_floating_point() else each.dtype) for name, each in state.items()}
