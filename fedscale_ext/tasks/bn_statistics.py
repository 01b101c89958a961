"""BatchNorm's statistics measured anew before models are served, in a pass over clients' training data.

HeteroFL (Diao et al., ICLR 2021, section 3, "static batch normalization") trains with each batch's own
statistics and queries the clients once for those of testing. Here each client's data pass through the network
in training mode, and every layer's count, sum and sum of squares are added up over clients: the mean and variance of
all samples at once. HeteroFL's public code averages batches' variances instead, on the server and from the clients' raw
data; over clients whose data differ, that leaves out how their means differ.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from fedscale_ext.core.types import State

EVENT = "statistics"  # of a unit that measures them, beside FedScale's events
SUMS = "sums"  # name of the section that holds them
_MEAN, _VARIANCE = "running_mean", "running_var"
_COUNT, _SUM, _SQUARES = "count", "sum", "squares"


def layers(state: State) -> list[str]:
    """Names of the layers of a model's state that have running statistics."""
    return [name.removesuffix(f".{_MEAN}") for name in state if name.endswith(f".{_MEAN}")]


def template(state: State) -> State:
    """Names, shapes and types of what :func:`sums` gives for a model."""
    found: State = {}
    for layer in layers(state):
        vector = torch.zeros_like(state[f"{layer}.{_MEAN}"], dtype=torch.float64)
        found |= {f"{layer}.{_COUNT}": torch.zeros((), dtype=torch.float64)}
        found |= {f"{layer}.{_SUM}": vector, f"{layer}.{_SQUARES}": vector.clone()}
    return found


@torch.no_grad()
def sums(module: nn.Module, batches: Iterable[Tensor]) -> State:
    """Per layer, over all positions of all samples that it saw: count [], sum [C] and sum of squares [C], float64.

    ``batches`` [B, C, H, W] pass through in training mode, each normalised by itself.
    """
    module.train()
    total = {name: tensor.cpu() for name, tensor in template(module.state_dict()).items()}

    def note(layer: str, x: Tensor) -> None:
        values = x.detach().movedim(1, 0).flatten(1)
        total[f"{layer}.{_COUNT}"] += values.shape[1]
        total[f"{layer}.{_SUM}"] += values.sum(1, dtype=torch.float64).cpu()
        total[f"{layer}.{_SQUARES}"] += values.square().sum(1, dtype=torch.float64).cpu()

    hooks = [
        module.get_submodule(layer).register_forward_pre_hook(lambda _, args, layer=layer: note(layer, args[0]))
        for layer in layers(module.state_dict())
    ]
    try:
        for batch in batches:
            module(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return total


def in_batches(rows: np.ndarray, most: int) -> list[np.ndarray]:
    """Row numbers of one client in batches of about equal size; none of a single sample, which has no variance."""
    parts = -(-len(rows) // most)
    return np.array_split(rows, max(1, min(parts, len(rows) // 2))) if len(rows) > 1 else []


def with_statistics(state: State, total: State) -> State:
    """The state with running statistics from sums over clients (the variance unbiased, as BatchNorm's is); layers
    that saw no sample keep theirs."""
    result = dict(state)
    for layer in layers(state):
        count = float(total[f"{layer}.{_COUNT}"])
        if count < 2:
            continue
        mean = total[f"{layer}.{_SUM}"] / count
        variance = (total[f"{layer}.{_SQUARES}"] / count - mean.square()).clamp(min=0.0) * (count / (count - 1))
        for name, value in ((_MEAN, mean), (_VARIANCE, variance)):
            result[f"{layer}.{name}"] = value.to(state[f"{layer}.{name}"].dtype)
    return result
