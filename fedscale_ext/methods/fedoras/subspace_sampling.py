"""What of a supernet a client is sent: operators up to a budget of bytes (FedorAS, section 3.1, Equation 1).

Operators without parameters always go along, they cost no traffic; a layer that has none of them gets one operator
first. Then operators of all layers are taken in random order until the next one would exceed the budget. The public
code subtracts what was taken first twice; here it counts once, and stem, reductions and classifier with it.
"""

import numpy as np

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.fedoras.path_sampling import sample_paths
from fedscale_ext.models.supernet.family import Tables


def _usable(tables: Tables) -> np.ndarray:
    return tables.held & np.isfinite(tables.macs)


def least_bytes(tables: Tables) -> int:
    """Bytes of the smallest budget that suffices whichever operators are taken first."""
    usable = _usable(tables)
    lacking = ~(usable & (tables.bytes == 0)).any(1)
    return int(tables.fixed_bytes + np.where(usable, tables.bytes, 0).max(1)[lacking].sum())


def total_bytes(tables: Tables) -> int:
    """Bytes of all that the tables list."""
    return int(tables.fixed_bytes + tables.bytes.sum())


def sample_subspace(
    tables: Tables, budget_bytes: int, rng: np.random.Generator, budget_macs: float = np.inf, more: Tables | None = None
) -> np.ndarray:
    """Draw the operators that a client is sent (Equation 1).

    Args:
        tables: Costs of the operators.
        budget_bytes: Bytes of parameters and buffers, at most.
        rng: Draws them.
        budget_macs: MACs per sample of a path that must be among them.
        more: The same space for other devices, whose supported operators may be sent too.

    Returns:
        bool [layers, operators].

    Raises:
        ValueError: One of the budgets does not suffice.

    """
    usable = _usable(tables)
    held = usable & (tables.bytes == 0)
    lacking = ~held.any(1)
    first = sample_paths(tables, np.where(lacking[:, None], usable, held), np.array([budget_macs]), rng)[0]
    held[lacking, first[lacking]] = True
    room = budget_bytes - tables.fixed_bytes - tables.bytes[held].sum()
    if room < 0:
        raise ValueError(f"{budget_bytes} bytes do not hold an operator for each layer")
    if more is not None:
        usable = _usable(more)
        held |= usable & (tables.bytes == 0)
    order = rng.permutation(np.flatnonzero(usable & ~held))
    held.flat[order[tables.bytes.flat[order].cumsum() <= room]] = True
    return held


def operators(tables: Tables, held: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """Names of the operators ``held``, layer by layer."""
    return tuple(
        tuple(name for name, one in zip(names, row, strict=False) if one)
        for names, row in zip(tables.ops, held.tolist(), strict=True)
    )


def held_by(tables: Tables, spec: ModelSpec) -> np.ndarray:
    """Operators of the tables that the spec of a subspace holds, bool [layers, operators]; inverse of
    :func:`operators`."""
    held = np.zeros_like(tables.held)
    for layer, (names, operators_of_layer) in enumerate(zip(tables.ops, spec["ops"], strict=True)):
        held[layer, [names.index(name) for name in operators_of_layer]] = True
    return held
