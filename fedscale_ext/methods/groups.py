"""Groups: how many clients have each level or type, and which clients these are."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.method import UserError


def check_groups_fit(key: str, groups: Sequence[int], levels: int, clients: int) -> None:
    """Raise UserError unless ``groups`` has a number for each level, and these add up to the clients."""
    rule = f"{key} is {list(groups)}; it must hold a number of clients for each of {levels} levels, smallest first"
    if len(groups) != levels:
        raise UserError(f"{rule}, and it holds {len(groups)} numbers")
    if min(groups, default=0) < 0:
        raise UserError(f"{rule}, none of them negative")
    if sum(groups) != clients:
        added = f"the {clients} clients with training data (they add up to {sum(groups)})"
        raise UserError(f"{rule}, that add up to {added}")


def check_dealt(method: str, key: str, types: Sequence[str], groups: Sequence[int], ranges: Sequence[str] = ()) -> None:
    """Check the types against the groups or ranges that deal them to devices.

    Args:
        method: Name of the method, for messages.
        key: Hyperparameter that names the types.
        types: Keys of the types.
        groups: Number of clients of each type; empty where groups deal nothing.
        ranges: Clients of each type; empty where ranges deal nothing.

    Raises:
        UserError: Two types have one name, or groups or ranges do not fit the types.

    """
    for name in types:
        if types.count(name) > 1:
            raise UserError(f"{method}.{key} has {name!r} twice; types are told apart by their models' names")
    if groups and ranges:
        raise UserError(
            f"{method}.groups and {method}.ranges are both given; remove one of them, as --set {method}.groups=[] does"
        )
    for part, entries in (("groups", groups), ("ranges", ranges)):
        if entries and len(entries) != len(types):
            raise UserError(f"{method}.{part} has {len(entries)} entries for {len(types)} types")
    for name, count in zip(types, groups, strict=False):
        if count < 1:
            raise UserError(f"{method}.groups gives {name} {count} devices; leave the type out, or give it one or more")


def check_total(key: str, groups: Sequence[int], clients: int) -> None:
    """Raise UserError unless ``groups``, the number of clients of each type, add up to the clients."""
    if sum(groups) != clients:
        raise UserError(
            f"{key} is {list(groups)}, which adds up to {sum(groups)}; it must hold a number of clients for each type "
            f"that add up to the {clients} clients with training data"
        )


def ranked_levels(order: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Deal levels to clients by rank, the smallest level to those that come first.

    Args:
        order: float64 [clients], such as capacities; of equal ones the first client comes first.
        groups: Clients on each level, smallest level first.

    Returns:
        The level of each client, int64 [clients]; 0 is the largest.

    """
    levels = np.repeat(np.arange(len(groups))[::-1], groups)
    level_of = np.empty(len(order), dtype=np.int64)
    level_of[np.argsort(order, kind="stable")] = levels
    return level_of


def deal(order: np.ndarray, macs: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """Deal types to clients by rank, the type of fewest MACs to those that come first.

    Args:
        order: float64 [clients], such as capacities; of equal ones the first client comes first.
        macs: MACs of each type's model, [types].
        groups: Clients of each type, [types].

    Returns:
        The type of each client, int64 [clients].

    """
    largest_first = np.argsort(-macs, kind="stable")
    return largest_first[ranked_levels(order, [groups[index] for index in largest_first[::-1]])]
