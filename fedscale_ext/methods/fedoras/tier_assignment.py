"""The tier of each client, by shares or by what its device affords (FedorAS, section 4.1)."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.brackets import RECIPES, Bracket, Recipe, budget_tables, cheapest_and_dearest
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.models.supernet.family import tables


def tiers_of(
    space: str, supernet: ModelSpec, params: FedorASParams, seed: int, brackets: tuple[Bracket, ...],
    capacity: np.ndarray, eligible: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Tier of each client.

    Args:
        space: Name of the supernet.
        supernet: Its spec.
        params: FedorAS's hyperparameters.
        seed: The job's seed.
        brackets: Brackets of the tiers.
        capacity: MACs per sample that clients afford, [clients].
        eligible: Clients that may train, bool [clients].

    Returns:
        int64 [clients].

    Raises:
        UserError: A tier has no client that may train.

    """
    if params.allocation == "capacity":
        tier_of = tiers_by_capacity(capacity * _counted_more(supernet), brackets)
        advice = "set fedoras.allocation: shares, lower fedoras.brackets or have fewer tiers"
    else:
        order = np.argsort(capacity, kind="stable")
        if params.allocation == "random":
            order = stream(seed, "tiers").permutation(len(capacity))
        tier_of = tiers_by_shares(order, _shares(space, params, len(brackets)))
        advice = "change fedoras.shares or have fewer tiers"
    for number in np.flatnonzero(np.bincount(tier_of[eligible], minlength=len(brackets)) == 0).tolist():
        raise UserError(f"tier {number + 1} of {len(brackets)} has none of the {len(tier_of)} clients; {advice}")
    return tier_of


def tiers_by_capacity(capacity: np.ndarray, brackets: Sequence[Bracket]) -> np.ndarray:
    """The highest tier whose budget each client affords; the lowest for those who afford none.

    Args:
        capacity: MACs per sample, counted as the brackets are, [clients].
        brackets: Brackets of the tiers.

    Returns:
        int64 [clients].

    """
    budgets = np.array([bracket.high for bracket in brackets])
    return np.maximum(np.searchsorted(budgets, capacity, side="right") - 1, 0)


def tiers_by_shares(order: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Deal tiers to clients by shares.

    A random permutation is the public code's way; ``argsort(capacity)`` puts the weakest clients into the lowest tier.
    What rounding leaves goes to the largest remainders (the code leaves such clients out).

    Args:
        order: A permutation of the clients; the first tier goes to those who come first.
        shares: Share of each tier.

    Returns:
        Tier of each client, int64 [clients].

    Raises:
        UserError: A share is negative, or a tier has no client.

    """
    if not shares or min(shares) < 0 or not sum(shares) > 0:
        raise UserError(f"the tiers' shares are {list(shares)}; each must be positive")
    clients = len(order)
    exact = np.asarray(shares, dtype=np.float64) / sum(shares) * clients
    counts = np.floor(exact + 1e-9).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: clients - counts.sum()]] += 1
    for number in np.flatnonzero(counts == 0).tolist():
        raise UserError(
            f"tier {number + 1} of {len(shares)} has none of the {clients} clients at a share of {shares[number]:g}; "
            "raise its share, or have fewer tiers"
        )
    tier_of = np.empty(clients, dtype=np.int64)
    tier_of[order] = np.repeat(np.arange(len(shares)), counts)
    return tier_of


def _counted_more(supernet: ModelSpec) -> float:
    """Ratio of the brackets' count of MACs to that of capacities, which count only products."""
    return cheapest_and_dearest(budget_tables(supernet, ()))[1] / cheapest_and_dearest(tables(supernet))[1]


def _shares(space: str, params: FedorASParams, number: int) -> tuple[float, ...]:
    if params.shares is None:
        shares = RECIPES.get(space, Recipe()).shares
        return shares if len(shares) == number else (1 / number,) * number
    if len(params.shares) != number:
        raise UserError(
            f"fedoras.shares is {list(params.shares)}; it must hold a share above 0 for each of {number} tiers"
        )
    return params.shares
