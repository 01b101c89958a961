"""FedorAS's hyperparameters, with the paper's defaults (sections 3 and 4)."""

from dataclasses import dataclass
from typing import Literal

from fedscale_ext.errors import UserError


@dataclass(frozen=True)
class FedorASParams:
    """Keys ``fedoras.<name>``.

    Tiers: ``brackets`` are the most MMACs of a path in each tier, smallest tier first, counted as the paper counts them
    (normalisation, activations and pooling too); none: ``tiers`` equal steps up to the dearest path. ``shares`` of the
    clients in each tier, weakest clients first; none: equal ones. ``unsupported`` names the operators that the devices
    of each tier cannot run, a list per tier.

    Supernet training (section 3.1): ``subspace`` is what of the supernet's bytes a client is sent at most (Eq. 1),
    drawn for each ``client``, or once for all clients of a ``round``. ``dynamic_budget`` is the share of its budget
    that a device's own work may take, at random, from each batch; 0 leaves budgets as they are. ``val_ratio`` of each
    client's training samples is held out for the search.

    ``aggregation``: opa weighs each operator by the examples that went through it (Eq. 5), fedavg all that a client
    holds by the examples that it trained on, plain all clients alike. Operators that fewer than ``opa_min_clients``
    trained stay as they are. ``opa_scope`` buffers_only does as the public code, which averages operators' weights as
    fedavg does.
    """

    brackets: tuple[float, ...] = ()
    tiers: int = 4
    shares: tuple[float, ...] | None = None
    unsupported: tuple[tuple[str, ...], ...] = ()
    subspace: float = 0.5
    subspace_per: Literal["client", "round"] = "client"
    dynamic_budget: float = 0.0
    val_ratio: float = 0.1
    aggregation: Literal["opa", "fedavg", "plain"] = "opa"
    opa_min_clients: int = 2
    opa_scope: Literal["all", "buffers_only"] = "all"

    def __post_init__(self) -> None:
        for name, value, least in (("tiers", self.tiers, 1), ("opa_min_clients", self.opa_min_clients, 1)):
            if value < least:
                raise UserError(f"fedoras.{name} is {value}; it must be at least {least}")
        if not 0 < self.subspace <= 1:
            raise UserError(f"fedoras.subspace is {self.subspace}; it must be above 0 and at most 1")
        for name, share in (("dynamic_budget", self.dynamic_budget), ("val_ratio", self.val_ratio)):
            if not 0 <= share < 1:
                raise UserError(f"fedoras.{name} is {share}; it must be at least 0 and below 1")
        if self.brackets and not all(a < b for a, b in zip((0.0, *self.brackets), self.brackets, strict=False)):
            raise UserError(f"fedoras.brackets is {list(self.brackets)}; it must hold rising MMACs, all above 0")
        number = self.number
        if self.shares is not None and not (len(self.shares) == number and min(self.shares) > 0):
            raise UserError(
                f"fedoras.shares is {list(self.shares)}; it must hold a share above 0 for each of {number} tiers"
            )
        if self.unsupported and len(self.unsupported) != number:
            raise UserError(
                f"fedoras.unsupported has {len(self.unsupported)} lists; it must hold one for each of {number} tiers"
            )

    @property
    def number(self) -> int:
        """Of tiers."""
        return len(self.brackets) or self.tiers
