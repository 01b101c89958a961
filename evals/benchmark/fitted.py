"""The sizes of a network that each kind of device affords: kind k has a budget of ``2**k`` times the weakest's MACs."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evals.benchmark.devices import KINDS
from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.models.resizing import FIXED
from fedscale_ext.submodels import narrowed


@dataclass(frozen=True)
class Fitted:
    """Sizes of one network, each with the clients that have it.

    Attributes:
        sizes: Different sizes, rising.
        groups: Number of clients of each size.
    """

    sizes: Sequence[float]
    groups: Sequence[int]

    @classmethod
    def of(cls, by_kind: Sequence[float], clients: Sequence[int]) -> "Fitted":
        """Join the kinds of devices that have the same size; ``clients`` of each kind, weakest first."""
        sizes = sorted(set(by_kind))
        return cls(sizes, [sum(n for one, n in zip(by_kind, clients, strict=True) if one == size) for size in sizes])


def budgets(weakest: ModelSpec) -> list[int]:
    """Return the MACs per sample that each kind of device affords, weakest first."""
    macs = models.cost(weakest).forward_macs
    return [macs * 2**kind for kind in range(KINDS)]


def rates(spec: ModelSpec) -> list[float]:
    """Return the rates of channels at which the network's widths change, rising to 1."""
    widths = [width for group, width in models.group_widths(spec).items() if group not in FIXED]
    return sorted({channels / width for width in widths for channels in range(1, width + 1)})


def width_rates(spec: ModelSpec, limits: Sequence[int]) -> list[float]:
    """Return the largest rate of channels within each budget.

    Raises:
        ValueError: If the narrowest version is above a budget.

    """
    return [_largest(spec, limit, lambda rate: narrowed(spec, rate)) for limit in limits]


def exit_widths(spec: ModelSpec, limits: Sequence[int]) -> list[float]:
    """Return the largest rate of channels at which the network up to exit 1, 2, ... is within each budget.

    A deeper level is never narrower, as ScaleFL asks.

    Raises:
        ValueError: If the narrowest version is above a budget.

    """
    fitted = [
        _largest(spec, limit, lambda rate, exits=number: prefix(narrowed(spec, rate), exits))  # type: ignore[misc]
        for number, limit in enumerate(limits, start=1)
    ]
    return [min(fitted[number:]) for number in range(len(fitted))]


def parameter_shares(spec: ModelSpec, by_kind: Sequence[float]) -> list[float]:
    """Return the share of the network's parameters that its version at each rate has."""
    whole = models.cost(spec).parameters
    return [models.cost(narrowed(spec, rate)).parameters / whole for rate in by_kind]


def skeleton_shares(spec: ModelSpec, limits: Sequence[int]) -> list[float]:
    """Return the largest share of filters with which FedSkel's step is within each budget.

    The forward pass is whole and the backward pass is of the share. Where no share is within a budget, it is the
    smallest one. FedSkel takes shares that a width's number of parameters has.
    """
    cost = models.cost(spec)
    backward = cost.training_macs - cost.forward_macs
    shares = parameter_shares(spec, rates(spec))

    def macs(share: float) -> float:
        return cost.forward_macs * (cost.forward_macs + share * backward) / cost.training_macs

    return [max((share for share in shares if macs(share) <= limit), default=shares[0]) for limit in limits]


def _largest(spec: ModelSpec, limit: int, version: Callable[[float], ModelSpec]) -> float:
    every = rates(spec)
    within = bisect_right(every, limit, key=lambda rate: models.cost(version(rate)).forward_macs)  # grow with the rate
    if not within:
        raise ValueError(f"the narrowest version of a network is above a budget of {limit:,} MACs")
    return every[within - 1]
