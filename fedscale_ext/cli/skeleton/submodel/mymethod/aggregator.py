"""The server's side of MyMethod: HeteroFL with a choice of weights, as a start.

Say here which paper the method follows, and by each step its section and equation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedscale_ext.method import NotNegative, Population, Task, UserError, WorkItem
from fedscale_ext.methods.submodel.capacity_levels import RatesAggregator, check_rates


@dataclass(frozen=True)
class MyMethodParams:
    """Hyperparameters of MyMethod: a configuration sets them as ``NAME.rates``.

    Attributes:
        rates: Share of each layer's channels on each level, falling. A client trains the widest one that it affords.
        size_power: Clients weigh their samples times the share of the model's parameters that they train to this
            power. With 0, only samples count.

    """

    rates: tuple[float, ...] = (1.0, 0.5, 0.25)
    size_power: NotNegative = 1.0

    def __post_init__(self) -> None:
        check_rates("mymethod.rates", self.rates)
        if list(self.rates) != sorted(self.rates, reverse=True):
            raise UserError(f"mymethod.rates is {list(self.rates)}; the rates must fall")


class MyMethodAggregator(RatesAggregator):
    """Clients train the leading channels of one model, wide ones count more (this line is in `fedscale methods`).

    The base decides by capacity who trains which level, and averages each entry over the clients that trained it.
    Override ``make_levels`` for other parts of the model, ``item_at`` for what clients know, ``aggregate`` for another
    mean, and name a ``Client`` for another loss.
    """

    Params: ClassVar[type] = MyMethodParams

    @property
    def rates(self) -> Sequence[float]:
        """Rates of the levels, widest first."""
        rates: tuple[float, ...] = self.params.rates
        return rates

    def init_state(self, population: Population, task: Task) -> None:
        """The whole model and its parts, and each client's level."""
        super().init_state(population, task)
        self.size_share: np.ndarray = self.kept_share()  # of the parameters, float64 [clients]

    def weight(self, item: WorkItem) -> float:
        """Weight of a client's state: n_k s_k^p, for n_k samples and a share s_k of the parameters."""
        return super().weight(item) * float(self.size_share[item.client - 1] ** self.params.size_power)
