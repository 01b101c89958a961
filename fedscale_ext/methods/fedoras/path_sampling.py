"""Paths through a supernet within a budget of MACs (FedorAS, section 3.1, Equations 2 and 3).

Equation 2 wants valid paths drawn uniformly; Equation 3 does it greedily, an operator per layer, in one pass and
without drawing anew. Where the printed equation and the public code disagree: the sum over the operators chosen so far
does not count the present one twice, what all paths share counts too, and a path may cost as much as its budget.

One thing is added. The paper lets layers without an identity choose first, since all others can still choose theirs;
two such layers could yet leave nothing for each other. So what the cheapest operators of the layers to come cost is set
aside before any layer chooses. For spaces in which one layer at most has no free operator it changes nothing.
"""

import numpy as np

from fedscale_ext.core.streams import Key, stream
from fedscale_ext.models.supernet.family import Tables


def cheapest(tables: Tables, held: np.ndarray) -> float:
    """MACs of the cheapest path through the operators ``held``, bool [layers, operators]; infinite where there is
    none."""
    return float(tables.fixed_macs + np.where(held, tables.macs, np.inf).min(1).sum())


def sample_paths(tables: Tables, held: np.ndarray, budgets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a path within each budget (Equation 3).

    It takes layers times (paths x operators) operations.

    Args:
        tables: Costs of the operators.
        held: Operators to choose from, bool [layers, operators].
        budgets: MACs per sample, [paths].
        rng: Draws the paths.

    Returns:
        Columns in ``tables`` of each path's operators, int64 [paths, layers].

    Raises:
        ValueError: A budget is below the cheapest path.

    """
    macs = np.where(held, tables.macs, np.inf)
    least = macs.min(1)
    needed = tables.fixed_macs + least.sum()
    if not (np.isfinite(needed) and (budgets >= needed).all()):  # also where a layer has no operator
        raise ValueError(f"a budget of {np.min(budgets):g} MACs is below the cheapest path, {needed:g}")
    excess = macs - least[:, None]
    slack = np.minimum(budgets - needed, excess[np.isfinite(excess)].sum())  # finite: what is not held never fits
    paths, layers = len(slack), len(macs)
    # the random permutation sigma of each path: layers without a free operator first
    order = np.argsort(rng.random((paths, layers)) + (least == 0), axis=1)
    draws = rng.random((paths, layers))
    chosen, rows = np.empty((paths, layers), dtype=np.int64), np.arange(paths)
    for step in range(layers):
        layer = order[:, step]
        costs = excess[layer]
        fitting = (costs <= slack[:, None]).cumsum(1)
        rank = (draws[:, step] * fitting[:, -1]).astype(np.int64)
        operator = (fitting > rank[:, None]).argmax(1)
        chosen[rows, layer] = operator
        slack -= costs[rows, operator]
    return chosen


def load_budgets(budget: float, least: float, load: float, steps: int, rng: np.random.Generator) -> np.ndarray:
    """Budgets of a device whose own work takes a random share of it from each batch.

    Args:
        budget: MACs per sample of the free device.
        least: Smallest budget.
        load: Largest share that its own work takes.
        steps: Number of batches.
        rng: Draws the shares.

    Returns:
        float64 [steps].

    """
    return np.maximum(budget * (1.0 - load * rng.random(steps)), least)


def drawn_paths(tables: Tables, held: np.ndarray, budget: float, load: float, steps: int, *key: Key) -> np.ndarray:
    """Draw the path of each of a client's batches.

    Both sides of the wire draw it: clients train it, and the virtual clock counts its MACs.

    Args:
        tables: Costs of the operators.
        held: Operators that the client holds, bool [layers, operators].
        budget: MACs per sample.
        load: Largest share of it that the device's own work takes.
        steps: Number of batches.
        *key: Key of the random streams: seed, round, client.

    Returns:
        int64 [steps, layers].

    """
    budgets = np.full(steps, budget)
    if load:
        budgets = load_budgets(budget, cheapest(tables, held), load, steps, stream(*key, "load"))
    return sample_paths(tables, held, budgets, stream(*key, "paths"))


def path_macs(tables: Tables, paths: np.ndarray) -> np.ndarray:
    """float64 [paths]: MACs per sample of paths int64 [paths, layers]."""
    return np.asarray(tables.fixed_macs + tables.macs[np.arange(paths.shape[1]), paths].sum(1))


def path_training_macs(tables: Tables, paths: np.ndarray) -> np.ndarray:
    """float64 [paths]: MACs per sample of the forward and backward pass of paths int64 [paths, layers]."""
    return np.asarray(tables.fixed_training_macs + tables.training_macs[np.arange(paths.shape[1]), paths].sum(1))
