"""Which operators of a supernet a client's local network still has (SPIDER): ``alive``, bool [layers, operators]."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedscale_ext.method import Cost

Ops = list[tuple[str, ...]]


def everything(ops: Sequence[Sequence[str]]) -> np.ndarray:
    """``alive`` of a network that keeps all operators of its layers: bool [layers, operators]."""
    alive = np.zeros((len(ops), max(map(len, ops))), dtype=bool)
    for layer, names in enumerate(ops):
        alive[layer, : len(names)] = True
    return alive


def alive_ops(ops: Sequence[Sequence[str]], alive: np.ndarray) -> Ops:
    """Names of the operators of each layer that are alive."""
    return [tuple(name for name, keeps in zip(names, row, strict=False) if keeps)
            for names, row in zip(ops, alive, strict=True)]  # fmt: skip


def drawn_layer(alive: np.ndarray, rng: np.random.Generator) -> int | None:
    """Draw the layer that a network shrinks: one that has a choice. None if no layer has."""
    several = np.flatnonzero(alive.sum(1) > 1)
    return int(rng.choice(several)) if len(several) else None


def without_each(alive: np.ndarray, layer: int) -> dict[int, np.ndarray]:
    """``alive`` of the network without each operator of a layer, by the operator's column."""
    networks = {}
    for column in np.flatnonzero(alive[layer]).tolist():
        networks[column] = alive.copy()
        networks[column][layer, column] = False
    return networks


def size_rows(costs: Sequence[Cost]) -> list[dict[str, Any]]:
    """Rows of a table: the least, mean and most MACs per sample, parameters and MB of networks.

    Each column stands for itself: the network of the fewest MACs need not be that of the fewest bytes.
    """
    names = "macs", "parameters", "mb"
    sizes = np.array([[cost.forward_macs, cost.parameters, cost.bytes / 1e6] for cost in costs])
    values = {"least": sizes.min(0), "mean": sizes.mean(0), "most": sizes.max(0)}
    return [{"value": value, **dict(zip(names, row.tolist(), strict=True))} for value, row in values.items()]
