"""Random paths whose MACs lie in a bracket: where a search begins, and random search.

The public code draws paths below the upper edge (Equation 3) until one is above the lower edge as well, which rarely
happens where the bracket is high. Here both edges guide each layer's choice: it is uniform among the operators with
which the cheapest and the dearest of the layers to come can still end inside.
"""

from collections.abc import Container

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedoras.brackets import Bracket, cheapest_and_dearest
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.models.supernet.family import Tables

Genes = tuple[int, ...]  # a path as columns of the tables, one per layer

_AT_ONCE = 256  # paths
_PATIENCE = 80  # draws of so many without a new path, and there are none


def paths_towards(tables: Tables, bracket: Bracket, paths: int, rng: np.random.Generator) -> np.ndarray:
    """Draw random paths led towards a bracket; not all of them need to be inside.

    Layers choose in a random order, another one for each path. Operators that are not supported are never chosen.

    Args:
        tables: Costs of the operators.
        bracket: The bracket.
        paths: Number of paths.
        rng: Draws them.

    Returns:
        Columns of the tables, int64 [paths, layers].

    """
    supported = np.isfinite(tables.macs)
    least = tables.macs.min(1)
    dearest = np.where(supported, tables.macs, -np.inf).max(1)
    layers = len(least)
    order = rng.permuted(np.tile(np.arange(layers), (paths, 1)), axis=1)
    draws = rng.random((layers, paths, supported.shape[1]))
    rows, chosen = np.arange(paths), np.empty((paths, layers), dtype=np.int64)
    spent = np.full(paths, tables.fixed_macs)
    below, above = np.full(paths, least.sum()), np.full(paths, dearest.sum())  # of the layers to come
    for step in range(layers):
        layer = order[:, step]
        below, above = below - least[layer], above - dearest[layer]
        after = spent[:, None] + tables.macs[layer]
        open_ = supported[layer] & (after + below[:, None] <= bracket.high) & (after + above[:, None] > bracket.low)
        open_ = np.where(open_.any(1, keepdims=True), open_, supported[layer])
        operator = np.where(open_, draws[step], -1).argmax(1)
        chosen[rows, layer] = operator
        spent = after[rows, operator]
    return chosen


def new_paths(
    tables: Tables, bracket: Bracket, paths: int, rng: np.random.Generator, seen: Container[Genes] = frozenset()
) -> list[Genes]:
    """Draw different random paths inside a bracket.

    Args:
        tables: Costs of the operators.
        bracket: The bracket.
        paths: Number of paths.
        rng: Draws them.
        seen: Paths that are not new.

    Returns:
        The new paths; fewer where there are no more.

    """
    paths_found: dict[Genes, None] = {}
    misses = 0
    while len(paths_found) < paths and misses < _PATIENCE:
        drawn = paths_towards(tables, bracket, _AT_ONCE, rng)
        inside = drawn[bracket.inside(path_macs(tables, drawn))]
        new = [
            genes
            for genes in dict.fromkeys(map(tuple, inside.tolist()))
            if genes not in seen and genes not in paths_found
        ]
        paths_found |= dict.fromkeys(new[: paths - len(paths_found)])
        misses = 0 if new else misses + 1
    return list(paths_found)


def check_reachable(tables: Tables, bracket: Bracket, rng: np.random.Generator) -> None:
    """Raise UserError where no path lies inside a bracket."""
    cheapest, dearest = cheapest_and_dearest(tables)
    if bracket.high < cheapest:
        why = f"the cheapest path takes {cheapest / 1e6:.6g}"
    elif bracket.low >= dearest:
        why = f"the dearest path takes {dearest / 1e6:.6g}"
    elif not new_paths(tables, bracket, 1, rng):
        why = f"none of {_AT_ONCE * _PATIENCE:,} paths that were drawn towards it is inside"
    else:
        return
    raise UserError(f"no path can be searched for that takes {bracket}: {why}; choose another bracket for this tier")
