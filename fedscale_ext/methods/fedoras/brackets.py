"""The brackets of tiers: which paths the devices of each tier may train (FedorAS, sections 3.1 and 4.1).

A tier's bracket (low, high] holds the MACs of the paths that are searched for it; ``high`` is its training budget. The
brackets come from random paths, as in the public code: sorted by MACs, the ones below the top edge hold the share
``top_mass`` of all MACs, and edges at equal distances lie between it and a low one; the last tier reaches up to the
dearest path. The code numbers the operators of every layer as the first layer has them, so that in its recurrent space
it never draws Zero and Identity; here each layer has its own number, and the code's way is ``as_first_layer``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.models.supernet import family
from fedscale_ext.models.supernet.family import Tables

if TYPE_CHECKING:
    from fedscale_ext.methods.fedoras.params import FedorASParams

PATHS = 100_000  # drawn for the brackets of a space


@lru_cache(maxsize=64)
def budget_tables(supernet: ModelSpec, unsupported: tuple[str, ...]) -> Tables:
    """Costs by the paper's count, in which tiers' budgets are given."""
    return family.tables(supernet, unsupported=unsupported, published=True)


class Bracket(NamedTuple):
    """MACs per sample of the paths of a tier: above ``low``, at most ``high``."""

    low: float
    high: float

    def inside(self, macs: np.ndarray) -> np.ndarray:
        """Whether each of ``macs`` lies in the bracket, bool of its shape."""
        return (self.low < macs) & (macs <= self.high)

    def __str__(self) -> str:
        high = f"{self.high / 1e6:.6g}"
        return f"at most {high} MMACs" if self.low == -inf else f"above {self.low / 1e6:.6g} and at most {high} MMACs"


@dataclass(frozen=True)
class Recipe:
    """Recipe for the tiers of a space.

    ``edges`` as printed, in MMACs as ptflops counts them (without any, they are drawn); ``shares`` of the clients; the
    masses by which edges are drawn.
    """

    edges: tuple[float, ...] = ()
    shares: tuple[float, ...] = (0.25,) * 4
    top_mass: float = 0.95
    low_mass: float = 0.0


RNN = Recipe((1.0, 7.95, 12.93, 17.9, 22.9, 33.9), (0.2,) * 5, 0.77, 0.01)
# A space that is not named here has the recipe Recipe()
RECIPES: Mapping[str, Recipe] = {
    "cnn_l": Recipe((18.9, 121.5, 224.2, 326.9, 718.2)),
    # the public code lists the three edges between; the outer ones are what all paths share and the dearest
    "cifar10_extra_range": Recipe((54.2, 101.06354, 714.005057, 1326.946574, 4455.5), top_mass=0.9, low_mass=1e-9),
    "cnn_s": Recipe((0.55, 5.0, 7.6, 10.2, 20.1), (0.8, 0.0125, 0.0125, 0.175), 0.925, 0.3),
    "rnn": RNN,
    "rnn_positions": RNN,
}


def between(edges: Sequence[float]) -> tuple[Bracket, ...]:
    """Brackets between rising edges, in MACs; UserError where they do not rise."""
    pairs = [Bracket(float(low), float(high)) for low, high in pairwise(edges)]
    if not pairs or not all(low < high for low, high in pairs):
        shown = ", ".join(f"{edge / 1e6:.6g}" for edge in edges)
        raise UserError(f"the edges of the tiers are {shown} MMACs; there must be two or more, each above the last")
    return tuple(pairs)


def cheapest_and_dearest(tables: Tables) -> tuple[float, float]:
    """MACs of the cheapest and of the dearest path of supported operators."""
    dearest = np.where(np.isfinite(tables.macs), tables.macs, -inf).max(1)
    return float(tables.fixed_macs + tables.macs.min(1).sum()), float(tables.fixed_macs + dearest.sum())


def space_brackets(space: str, tables: Tables, rng: np.random.Generator) -> tuple[Bracket, ...]:
    """Brackets of a space by its name.

    They are the printed ones, where it has some and its dearest path takes the printed MACs to within a per cent
    (``published`` tables do, of inputs of the paper's size). Elsewhere they are drawn. What rounding took from the
    printed range is part of the outer tiers.
    """
    recipe = RECIPES.get(space, Recipe())
    dearest = cheapest_and_dearest(tables)[1]
    if recipe.edges and abs(dearest / (1e6 * recipe.edges[-1]) - 1) < 0.01:
        low, *inner, high = (1e6 * edge for edge in recipe.edges)
        return between([min(low, tables.fixed_macs), *inner, max(high, dearest)])
    return drawn_brackets(tables, len(recipe.shares), rng, top_mass=recipe.top_mass, low_mass=recipe.low_mass)


def drawn_brackets(
    tables: Tables,
    tiers: int,
    rng: np.random.Generator,
    *,
    top_mass: float = 0.95,
    low_mass: float = 0.0,
    paths: int = PATHS,
    as_first_layer: bool = False,
) -> tuple[Bracket, ...]:
    """Draw the brackets of ``tiers`` tiers from random paths.

    Without a ``low_mass``, the first edge is the cost that all paths share, and the next ones are equally far from each
    other. With one, the first tier ends where the cheapest paths that hold more than it do.

    Args:
        tables: Costs of the operators.
        tiers: Number of tiers.
        rng: Draws the paths.
        top_mass: Share of all MACs below the top edge.
        low_mass: Share of all MACs in the first tier.
        paths: Number of paths.
        as_first_layer: Whether operators are numbered as in the first layer (the public code).

    Returns:
        A bracket for each tier.

    Raises:
        UserError: Masses and number of tiers make no brackets.

    """
    if tiers < 1 + (low_mass > 0):
        raise UserError(f"there are {tiers} tiers; there must be {'two' if low_mass else 'one'} or more")
    if not 0 <= low_mass < top_mass <= 1:
        raise UserError(
            f"brackets of tiers lie between the masses {low_mass:g} and {top_mass:g}; these must rise from 0 to 1"
        )
    macs = _drawn_macs(tables, rng, paths, as_first_layer)
    mass = np.cumsum(macs / macs.sum())

    def edge(share: float) -> float:
        return float(macs[min(int(np.searchsorted(mass, share, side="right")), len(macs) - 1)])

    low = [edge(low_mass)] if low_mass else []
    start = low[0] if low else tables.fixed_macs
    inner = np.linspace(start, edge(top_mass), tiers - len(low)).tolist()
    return between([tables.fixed_macs] * len(low) + inner + [cheapest_and_dearest(tables)[1]])


def _drawn_macs(tables: Tables, rng: np.random.Generator, paths: int, as_first_layer: bool) -> np.ndarray:
    supported = np.isfinite(tables.macs)
    counts = supported.sum(1)
    numbers = rng.integers(0, np.minimum(counts, counts[0]) if as_first_layer else counts, (paths, len(counts)))
    columns = np.argsort(~supported, axis=1, kind="stable")  # of each layer, those that are supported first
    return np.sort(path_macs(tables, columns[np.arange(len(counts)), numbers]))


def brackets_of(space: str, supernet: ModelSpec, params: "FedorASParams", seed: int) -> tuple[Bracket, ...]:
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


def upper_only(brackets: Sequence[Bracket]) -> tuple[Bracket, ...]:
    """Equation 6 as printed: a tier's paths have a budget and no smallest size."""
    return tuple(bracket._replace(low=-inf) for bracket in brackets)
