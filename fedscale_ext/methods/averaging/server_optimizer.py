"""Adaptive server optimisers (Reddi et al., ICLR 2021, Algorithm 2), on parameters only.

Buffers such as BatchNorm's running statistics take the clients' mean: FedScale applies Yogi to them too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from fedscale_ext.method import State


@dataclass
class ServerOptimizer:
    """Moments of one model. ``eta`` server learning rate, ``tau`` adaptivity, ``beta``, ``beta2`` decay of
    the moments; v starts at tau squared (Algorithm 2, line 1)."""

    kind: Literal["yogi", "adam"]
    eta: float
    tau: float
    beta: float
    beta2: float
    m: State = field(default_factory=dict)
    v: State = field(default_factory=dict)

    def step(self, old: State, mean: State, parameters: Sequence[str]) -> State:
        """Take a step of Algorithm 2.

        Args:
            old: The model's state before the round.
            mean: The clients' mean.
            parameters: Names of the trainable tensors.

        Returns:
            x + eta m / (sqrt(v) + tau) for parameters, the mean for all other tensors.

        """
        new = dict(mean)
        for name in parameters:
            change = mean[name].double() - old[name].double()
            square = change.square()
            m = self.m.get(name, torch.zeros_like(change))
            v = self.v.get(name, torch.full_like(change, self.tau**2))
            self.m[name] = m = self.beta * m + (1.0 - self.beta) * change
            self.v[name] = v = self._second(v, square)
            new[name] = (old[name].double() + self.eta * m / (v.sqrt() + self.tau)).to(old[name].dtype)
        return new

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        if self.kind == "adam":
            return self.beta2 * v + (1.0 - self.beta2) * square
        return v - (1.0 - self.beta2) * square * torch.sign(v - square)

    def tensors(self) -> State:
        """Return both moments, for a checkpoint."""
        return {
            f"{kind}/{name}": tensor
            for kind, moment in (("m", self.m), ("v", self.v))
            for name, tensor in moment.items()
        }

    def load(self, tensors: State) -> None:
        """Restore the moments that :meth:`tensors` returned."""
        for key, tensor in tensors.items():
            kind, _, name = key.partition("/")
            (self.m if kind == "m" else self.v)[name] = tensor
