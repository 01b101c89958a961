"""The tiers of a job: their brackets, and who is in them (FedorAS, sections 3.1 and 4.1)."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.client import budget_tables
from fedscale_ext.methods.fedoras.params import FedorASParams
from fedscale_ext.methods.fedoras.tiers import (
    RECIPES,
    Bracket,
    Recipe,
    between,
    cheapest_and_dearest,
    drawn_brackets,
    space_brackets,
    tiers_by_capacity,
    tiers_by_shares,
)
from fedscale_ext.models.supernet.family import tables


def brackets_of(space: str, supernet: ModelSpec, params: FedorASParams, seed: int) -> tuple[Bracket, ...]:
    """Bracket of each tier, as configured, or those of the space by its name.

    Args:
        space: Name of the supernet.
        supernet: Its spec.
        params: FedorAS's hyperparameters.
        seed: The job's seed.

    Returns:
        A bracket for each tier.

    Raises:
        UserError: The budget of a tier is below its cheapest path.

    """
    costs = budget_tables(supernet, ())
    if params.brackets:
        cheapest = cheapest_and_dearest(costs)[0]
        if 1e6 * params.brackets[0] < cheapest:
            raise UserError(
                f"the budget of tier 1 is {params.brackets[0]:g} MMACs and its cheapest path takes "
                f"{cheapest / 1e6:.4g}; raise fedoras.brackets"
            )
        low = min(costs.fixed_macs, 0.999e6 * params.brackets[0])  # a budget of only the cheapest path
        return between([low, *(1e6 * edge for edge in params.brackets)])
    rng = stream(seed, "brackets")
    recipe = RECIPES.get(space, Recipe())
    try:
        if params.tiers is None:
            return space_brackets(space, costs, rng)
        return drawn_brackets(costs, params.tiers, rng, top_mass=recipe.top_mass, low_mass=recipe.low_mass)
    except UserError as error:  # a space of few paths
        raise UserError(f"{error}; have fewer of them, or name their budgets in fedoras.brackets") from None


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
