"""Models that stay in an executor: built once per spec, their tensors overwritten for each client.

:class:`Resident` is one module for clients one after another, :class:`Cohort` the same network for K clients at once.
Both start from a :data:`State` and give the trained state.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.types import State
from fedscale_ext.models.layers.strided import guard
from fedscale_ext.models.stacked.network import Mapped, Stacked
from fedscale_ext.models.stacked.trial import STEPS
from fedscale_ext.training.cuda_graph import RecordedStep
from fedscale_ext.training.factored import FactoredWeight, FactoredWeights
from fedscale_ext.training.optimizers.choice import Optimizer
from fedscale_ext.training.optimizers.sgd import Sgd

CohortState = dict[str, Tensor | FactoredWeights]  # by state name, [clients, *shape]


@dataclass(frozen=True)
class Start:
    """An initial state in a resident's memory order.

    Attributes:
        flat: All floating entries of ``state``, [n] of each dtype; None if ``state`` lacks some tensors.
        state: The tensors by name.

    """

    flat: dict[torch.dtype, Tensor] | None
    state: State


class Resident:
    """A module whose floating parameters and buffers are views of one vector, so that a client starts by one copy.

    There is a vector for each dtype. Buffers outside the state begin with each client as they were built.

    Args:
        module: The network.
        device: Where it trains.
        channels_last: Whether convolution weights use torch's channels_last memory format, which lets the CPU's
            kernels run without reordering.

    """

    def __init__(self, module: nn.Module, device: torch.device, *, channels_last: bool) -> None:
        self.module, self._device = module.to(device), device
        guard(self.module)
        tensors = module.state_dict(keep_vars=True)
        self.floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
        self.integers = {name: tensor for name, tensor in tensors.items() if name not in self.floating}
        self._channels_last = channels_last
        self._flat = self._empty()
        for name, view in self._views(self._flat).items():
            tensor = self.floating[name]
            view.copy_(tensor.detach())
            tensor.data = view
        self._buffers = [
            (part._buffers, name, tensor, _outside_the_state(part, name, tensor))
            for part in module.modules()
            for name, tensor in part._buffers.items()
        ]

    def start(self, state: State) -> Start:
        """Prepare ``state``, of all tensors or some and on any device, to be restored any number of times."""
        if len(state) < len(self.floating) + len(self.integers):
            return Start(None, {name: tensor.to(self._device) for name, tensor in state.items()})
        flat = self._empty()
        floating = self._views(flat)
        for name, view in floating.items():
            view.copy_(state[name])
        here = {name: floating[name] if name in floating else state[name].to(self._device) for name in state}
        return Start(flat, here)

    def restore(self, start: Start) -> None:
        """Overwrite the module's tensors with those of ``start``."""
        for buffers, name, buffer, built in self._buffers:
            buffers[name] = buffer  # the network's code may have set another one
            if buffer is not None and built is not None:
                buffer.copy_(built)
        if start.flat is None:
            floating = [name for name in start.state if name in self.floating]
            with torch.no_grad():
                torch._foreach_copy_([self.floating[name] for name in floating], [start.state[n] for n in floating])
        else:
            for dtype, flat in start.flat.items():
                self._flat[dtype].copy_(flat)
        for name, tensor in self.integers.items():
            if name in start.state:
                tensor.copy_(start.state[name])

    def _empty(self) -> dict[torch.dtype, Tensor]:
        """Return memory for the floating tensors, a vector of each dtype."""
        entries: dict[torch.dtype, int] = {}
        for tensor in self.floating.values():
            entries[tensor.dtype] = entries.get(tensor.dtype, 0) + tensor.numel()
        return {dtype: torch.empty(count, dtype=dtype, device=self._device) for dtype, count in entries.items()}

    def _views(self, flat: dict[torch.dtype, Tensor]) -> dict[str, Tensor]:
        """Return the floating tensors by name, as views of ``flat``."""
        views, begins = {}, dict.fromkeys(flat, 0)
        for name, tensor in self.floating.items():
            begin = begins[tensor.dtype]
            begins[tensor.dtype] = end = begin + tensor.numel()
            views[name] = _shaped(flat[tensor.dtype][begin:end], tensor.shape, self._channels_last)
        return views


def _outside_the_state(part: nn.Module, name: str, buffer: Tensor | None) -> Tensor | None:
    """Return a copy of a buffer that the module's state does not have, None for another."""
    return None if buffer is None or name not in part._non_persistent_buffers_set else buffer.clone()


class Cohort:
    """Networks of up to K clients side by side.

    Attributes:
        tensors: By state name, [K, *shape].
        factored: By state name, weights that the clients share instead (:mod:`factored`).
        trainable: Names of the parameters that train.

    Args:
        network: The stacked form of ``module``.
        module: The network of one client.
        input_shape: Shape of a sample, (C, H, W).
        clients: Largest number of clients, K.
        device: Where they train.
        channels_last: Whether convolution weights use the channels_last memory format.
        factored: State names of the weights to share, except for those that no backward pass comes to.

    """

    def __init__(
        self,
        network: Stacked | Mapped,
        module: nn.Module,
        input_shape: Sequence[int],
        clients: int,
        device: torch.device,
        *,
        channels_last: bool,
        factored: Sequence[str] = (),
    ) -> None:
        self.network = network
        self.clients = clients
        self.device = device
        self.channels_last = channels_last
        self.draws = isinstance(network, Stacked) and network.draws
        # steps of static shape become CUDA graphs, which cannot contain random numbers drawn on the CPU
        self.records = device.type == "cuda" and not self.draws
        self.recorded: dict[Any, RecordedStep] = {}
        self._lay_out(module, input_shape, factored)
        reached = [name for name, weight in self.factored.items() if weight.reached]
        if len(reached) < len(factored):  # factors come from backward passes, and none would come to the others
            self._lay_out(module, input_shape, reached)

    def _lay_out(self, module: nn.Module, input_shape: Sequence[int], factored: Sequence[str]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self.factored = {name: FactoredWeight() for name in factored}
        state = module.state_dict()
        for name, tensor in state.items():
            if tensor.is_floating_point() and name not in self.factored:
                memory = torch.empty(self.clients * tensor.numel(), dtype=tensor.dtype, device=self.device)
                self.tensors[name] = _shaped(memory, (self.clients, *tensor.shape), self.channels_last)
        named = module.train().named_parameters()  # a network's train() may set which of them train
        self.trainable = [name for name, tensor in named if tensor.requires_grad and name in self.tensors]
        self.restore(state)
        self.trainable = self._used(input_shape)

    def _used(self, input_shape: Sequence[int]) -> list[str]:
        """Return the names of the parameters that the network uses; training does not change the others."""
        self.begin(Sgd(0.0, 0.0, 0.0, 0.0, None), 1, 1, 2)
        parameters = self.bind(1, None)
        x = parameters[0].new_zeros(2, 1, *input_shape)
        gradients = torch.autograd.grad(self.network(x).sum(), parameters, allow_unused=True)
        return [name for name, gradient in zip(self.trainable, gradients, strict=True) if gradient is not None]

    def client_bytes(self, rows: int) -> int:
        """Return the bytes of one client's state, if its steps read ``rows`` samples in all."""
        unshared = sum(tensor.nbytes for tensor in self.tensors.values()) // self.clients
        return unshared + sum(
            rows * sum(self._start[name].shape) * self._start[name].itemsize for name in self.factored
        )

    def restore(self, start: State) -> None:
        """Set the initial state of every client."""
        self._start = start
        for name, tensor in self.tensors.items():
            tensor.copy_(start[name].expand_as(tensor))

    def set_start(self, row: int, state: State) -> None:
        """Set the initial state of the client in ``row``, except for the weights that all clients share."""
        for name, tensor in self.tensors.items():
            tensor[row].copy_(state[name])

    def takes(self, sizes: Sequence[np.ndarray]) -> bool:
        """Return whether clients with these batch sizes can train together.

        A network without stacked layers cannot leave rows out, so that its clients' batches must agree.

        Args:
            sizes: Number of samples in each step of each client, int64 [steps], longest first.

        """
        return isinstance(self.network, Stacked) or all(
            np.array_equal(batch_sizes, sizes[0][: len(batch_sizes)]) for batch_sizes in sizes
        )

    def restart(self) -> None:
        """Return to the initial state that was set last."""
        self.restore(self._start)

    def begin(self, optimizer: Optimizer, clients: int, steps: int, batch: int) -> None:
        """Prepare the shared weights for training from the initial state that was set last.

        Args:
            optimizer: The clients' optimizer.
            clients: Number of clients.
            steps: Largest number of steps.
            batch: Largest number of samples of a step.

        Raises:
            ValueError: If weights are shared and the optimizer is not SGD.

        """
        for name, weight in self.factored.items():
            if not isinstance(optimizer, Sgd):
                raise ValueError("only under SGD weights stay in the span of their gradients")
            weight.begin(self._start[name], optimizer, clients, steps, batch)

    def advance(self) -> None:
        """Count a step in the shared weights."""
        for weight in self.factored.values():
            weight.advance()

    def bind(self, clients: int, mask: Tensor | None) -> list[Tensor]:
        """Bind the network to the first clients.

        Args:
            clients: Number of clients, k.
            mask: Which rows of a batch are samples, bool [B, k]; None if all are.

        Returns:
            Their trainable parameters [k, *shape], which require gradients.

        """
        active = {name: tensor[:clients] for name, tensor in self.tensors.items()}
        for name in self.trainable:
            active[name] = active[name].detach().requires_grad_()
        self.network.bind(active, clients, mask, self.factored)
        return [active[name] for name in self.trainable]

    def trained(self, steps: Sequence[int]) -> CohortState:
        """Return the first clients' states [len(steps), *shape] after ``steps``; the next cohort overwrites them."""
        num_steps = torch.tensor(steps, device=self.device)
        states: CohortState = {}
        for name, value in self._start.items():
            if name in self.factored:
                states[name] = self.factored[name].trained(steps)
            elif name in self.tensors:
                states[name] = self.tensors[name][: len(steps)]
            else:
                states[name] = self._counted(name, value, num_steps)
        return states

    def _counted(self, name: str, start: Tensor, steps: Tensor) -> Tensor:
        return start + steps if name.endswith(STEPS) else start.expand(len(steps), *start.shape)


def _shaped(memory: Tensor, shape: Sequence[int], channels_last: bool) -> Tensor:
    """View a vector in ``shape``, with its last three axes (C, H, W) in channels_last order if ``channels_last``."""
    if not channels_last or len(shape) < 4:
        return memory.view(torch.Size(shape))  # of a single number, too
    *outer, channels, height, width = shape
    return memory.view(*outer, height, width, channels).movedim(-1, -3)


def channels_last_helps(device: torch.device) -> bool:
    """Return whether channels_last is faster: for CPU kernels, but not for a GPU's, in float32 nor in bfloat16."""
    return device.type == "cpu"


def autocast(device: torch.device, precision: str) -> contextlib.AbstractContextManager[None]:
    """Return a context that runs forward passes in ``precision``; weights, losses and gradients keep their dtype."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
