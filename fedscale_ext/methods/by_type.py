"""Results and costs by type of device, of methods whose clients keep one type, or level, for the whole job."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedscale_ext.method import MultiModelAggregator, WorkItem
from fedscale_ext.metrics.device_types import Participation, device_type_figures
from fedscale_ext.metrics.energy import joules
from fedscale_ext.server.schedule import client_times


class ByTypeAggregator(MultiModelAggregator):
    """Base of methods whose clients keep one type, or level, for the whole job.

    ``type_of`` int64 [clients] is the index of each client's type among :meth:`type_names`.
    """

    type_of: np.ndarray

    def type_names(self) -> Sequence[str]:
        """Names of the types, largest first where they are parts of one model."""
        raise NotImplementedError

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client, with the server's state as it is now."""
        raise NotImplementedError

    def usual(self, *, first: bool) -> list[WorkItem]:
        """Work items of one round of all clients, in the order of their numbers.

        Args:
            first: Whether it is the round in which a client takes part for the first time.

        Returns:
            An item for each client.

        """
        return [self.item_of(client + 1) for client in range(self.task.num_clients)]

    def opening(self) -> list[WorkItem]:
        """Work items of all clients in the job's first round, in the order of their numbers."""
        return self.usual(first=True)

    def next_items(self) -> list[WorkItem]:
        """Work items of all clients in the next round, in the order of their numbers."""
        return self.usual(first=False)

    def results(self) -> dict[str, Any]:
        """Report accuracy, rounds, time, modelled energy and transmission by type."""
        items = self.usual(first=False), self.usual(first=True), self.opening()
        usual, first, opening = map(self._participation, items)
        shares = self.kept_share()
        figures = device_type_figures(
            self.history, self.type_of, self.type_names(), usual, first, opening, shares,
            tested=self.scheduled_tests(last=True),
        )  # fmt: skip
        return figures if shares is None else {**figures, "kept_share": shares.tolist()}

    def _participation(self, items: Sequence[WorkItem]) -> Participation:
        down, up = (np.array(list(map(each, items)), dtype=np.float64) for each in (self.traffic, self.uploaded))
        _, computation, communication = client_times(
            items,
            self.pool,
            self.population,
            self.task,
            reference_macs=self.config.job.reference_macs,
            traffic=self.traffic,
            upload=self.uploaded,
        )
        energy = joules(self.population.computation_ms, computation, communication, down, up)
        return Participation(self.one_way(up), down + up, computation + communication, energy)

    def report_dealt_beyond(self, macs: Sequence[float], key: str) -> None:
        """Count and report the clients that do not afford their type, where a hyperparameter deals the types.

        Args:
            macs: MACs per sample of each type's network.
            key: The hyperparameter's name.

        """
        if beyond := self.count_beyond(np.array(macs, dtype=np.float64)[self.type_of]):
            have = "client has" if beyond == 1 else "clients have"
            self.notice(
                f"{beyond:,} {have} a type that is beyond their capacity: {key} deals types whatever devices afford"
            )

    def kept_share(self) -> np.ndarray | None:
        """Share of the whole model's parameters that each client holds in the end, float64 [clients].

        None where types have models of their own.
        """
        return None

    def one_way(self, up: np.ndarray) -> np.ndarray:
        """Bytes of a participation that the paper's Table 4 counts, [clients]: the uploaded ones, ``up``."""
        return up
