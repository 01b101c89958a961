"""Which weights of a model a client keeps: bool tensors by name, packed into bits where they are stored or sent."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.parts import part_of
from fedscale_ext.method import State


def prunable(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of convolutions and linear layers: what has two axes or more. Biases and norms stay whole."""
    return {name: tensor for name, tensor in parameters.items() if tensor.dim() > 1}


def pack(mask: Mapping[str, Tensor], prefix: str = "") -> State:
    """Pack masks, eight entries to a byte: uint8 [ceil(entries / 8)] by prefix and name, on the CPU."""
    return {
        f"{prefix}{name}": torch.from_numpy(np.packbits(one.cpu().numpy().reshape(-1))) for name, one in mask.items()
    }


def unpack(packed: Mapping[str, Tensor], weights: Mapping[str, Tensor], prefix: str = "") -> State:
    """Unpack masks in the shapes of ``weights`` and on their device; all ones for what ``packed`` lacks."""
    masks = {}
    for name, weight in weights.items():
        masks[name] = torch.ones(weight.shape, dtype=torch.bool, device=weight.device)
        if f"{prefix}{name}" in packed:
            bits = np.unpackbits(packed[f"{prefix}{name}"].cpu().numpy(), count=weight.numel())
            masks[name].copy_(torch.from_numpy(bits).view(weight.shape))
    return masks


def num_largest(entries: int, share: float) -> int:
    """Number of the largest entries, filters or weights: ``share`` of them, one at least."""
    return max(1, round(share * entries))


def survivors(mask: State) -> int:
    """Number of entries that survive."""
    return sum(int(one.sum()) for one in mask.values())


def pruned(mask: State, weights: Mapping[str, Tensor], share: float) -> State:
    """Prune the ``share`` of each layer's surviving weights that is smallest in magnitude, rounded down.

    Args:
        mask: Surviving entries, bool by name; it stays as it is.
        weights: Weights by name.
        share: Share of the survivors to prune; of equal ones the first go.

    Returns:
        The new mask.

    """
    result = {}
    for name, one in mask.items():
        alive = one.flatten().nonzero().flatten()
        order = weights[name].detach().flatten()[alive].abs().argsort(stable=True)
        gone = alive[order[: int(part_of(share, len(alive)))]]
        result[name] = one.flatten().index_fill(0, gone, False).view(one.shape)
    return result


@torch.no_grad()
def apply(mask: State, parameters: Mapping[str, Tensor]) -> None:
    """Set the entries outside of a mask to zero, in place."""
    for name, one in mask.items():
        parameters[name].masked_fill_(~one, 0.0)
