"""K networks of one spec by torch.func.vmap, for networks without a stacked form."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedscale_ext.models.layers.final_layer import Input, input_of
from fedscale_ext.models.layers.strided import guard
from fedscale_ext.models.stacked import layers


class Mapped(nn.Module):
    """Networks of K clients by torch.func.vmap, for networks without a stacked form; full batches only."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        guard(module)
        self._module = [module.train()]  # in a list, so that its tensors are not registered here
        self._tap: tuple[nn.Module, Input] | None = None

    def bind(
        self,
        tensors: Mapping[str, Tensor],
        clients: int,
        mask: Tensor | None = None,
        shared: Mapping[str, layers.SharedWeight] = layers.NOTHING_SHARED,
    ) -> None:
        """Use the tensors of the clients; see :meth:`Stacked.bind`.

        Args:
            tensors: By state name, [K, *shape].
            clients: Number of clients, K.
            mask: Must be None.
            shared: Must be empty.

        Raises:
            ValueError: If there is a mask, or a shared weight.

        """
        if mask is not None:
            raise ValueError("clients with batches of different sizes cannot be mapped in one cohort")
        if shared:
            raise ValueError("a mapped network's clients each need weights of their own")
        self._tensors = dict(tensors)

    @contextmanager
    def tapped(self, name: str) -> Iterator[Input]:
        """Keep the last input [K, B, features] of the linear layer ``name`` while the block runs."""
        self._tap = self._module[0].get_submodule(name), Input()
        try:
            yield self._tap[1]
        finally:
            self._tap = None

    def linear(self, name: str) -> Callable[[Tensor], Tensor]:
        """Return the linear layer ``name`` of the clients that are bound: [K, B, features] -> [K, B, outputs]."""
        weight, bias = self._tensors[f"{name}.weight"], self._tensors.get(f"{name}.bias")

        def apply(features: Tensor) -> Tensor:
            output = features @ weight.transpose(1, 2)
            return output if bias is None else output + bias.unsqueeze(1)

        return apply

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        def one(tensors: dict[str, Tensor], samples: Tensor) -> Tensor:
            output: Tensor = functional_call(self._module[0], tensors, (samples,))
            return output

        def one_tapped(tensors: dict[str, Tensor], samples: Tensor) -> tuple[Tensor, Tensor]:
            assert self._tap is not None
            with input_of(self._tap[0]) as last:
                return one(tensors, samples), last.features

        samples = x.transpose(0, 1)  # [K, B, C, H, W]
        if self._tap is None:
            mapped: Tensor = torch.vmap(one)(self._tensors, samples)
        else:  # what is computed within vmap must be returned from it
            mapped, self._tap[1].features = torch.vmap(one_tapped)(self._tensors, samples)
        return mapped  # [K, B, classes]
