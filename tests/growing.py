"""What tests of growing models share: states as after training, children of random transformations, their outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.fedtrans.model_transformer import Transformation, transform
from fedscale_ext.models.cells import cell_family

State = dict[str, torch.Tensor]


def random_state(spec: ModelSpec, seed: int, dtype: torch.dtype = torch.float64) -> State:
    """A state as after training: no scale or shift at its initial value, nor any weights so small that a part of a
    cell is not heard."""
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, tensor in models.initial_state(spec, seed).items():
        if not tensor.is_floating_point():
            state[name] = tensor
        elif tensor.dim() == 1 or "position" in name:
            state[name] = torch.rand(tensor.shape, generator=generator, dtype=dtype) + 0.5
        else:
            state[name] = torch.randn(tensor.shape, generator=generator, dtype=dtype) * 0.4
    return state


def inputs(spec: ModelSpec, seed: int, batch: int = 5, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Samples [batch, C, H, W] for a spec."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *spec["input_shape"], generator=generator, dtype=dtype)


def _network(spec: ModelSpec, state: Mapping[str, torch.Tensor]) -> torch.nn.Module:
    module = models.build(spec).to(next(iter(state.values())).dtype)
    module.load_state_dict(state)
    return module


def outputs(spec: ModelSpec, state: Mapping[str, torch.Tensor], x: torch.Tensor, train: bool) -> torch.Tensor:
    """Logits [batch, classes] in train or eval mode."""
    with torch.no_grad():
        return _network(spec, state).train(train)(x)


def assert_same_function(
    spec: ModelSpec,
    state: State,
    child_spec: ModelSpec,
    child: State,
    seed: int,
    modes: Sequence[bool] = (True, False),
    within: float = 1e-9,
) -> None:
    """Equal outputs, but for ``within`` of the largest, in train (True) and eval mode."""
    x = inputs(spec, seed, dtype=next(iter(state.values())).dtype)
    for train in modes:
        expected, actual = outputs(spec, state, x, train), outputs(child_spec, child, x, train)
        torch.testing.assert_close(actual, expected, atol=within * float(expected.abs().max().clamp(min=1)), rtol=0)


def trained(spec: ModelSpec, state: State, steps: int) -> State:
    """The state after so many steps of SGD on one batch."""
    module, x = _network(spec, state), inputs(spec, 9, batch=8, dtype=next(iter(state.values())).dtype)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(x), torch.arange(8) % spec["num_classes"]).backward()
        optimiser.step()
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def grow(
    spec: ModelSpec, state: State, seed: int, generations: int, **options: Any
) -> tuple[ModelSpec, State, tuple[Transformation, ...]]:
    """The last of a chain of children, each by transforming one or two random cells."""
    rng, steps, last_op = np.random.default_rng(seed), (), {}
    for generation in range(generations):
        ids = cell_family(spec).cell_ids(spec)
        chosen = sorted(rng.choice(len(ids), min(len(ids), 2), replace=False))
        spec, state, new = transform(
            spec, state, [ids[i] for i in chosen], last_op, generator=rng, next_cell_id=100 + 10 * generation, **options
        )
        last_op.update({step.cell_id: step.op for step in new})
        steps += new
    return spec, state, steps
