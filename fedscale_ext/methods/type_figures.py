"""Results and costs by type of device, of methods whose clients keep one type, or level, for the whole job."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedscale_ext.method import MultiModelAggregator, WorkItem
from fedscale_ext.metrics.device_types import device_type_figures


class TypeFiguresAggregator(MultiModelAggregator):
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

    def next_items(self) -> list[WorkItem]:
        """Work items of all clients in the next round, in the order of their numbers."""
        return [self.item_of(client + 1) for client in range(self.task.num_clients)]

    def results(self) -> dict[str, Any]:
        """Report accuracy, rounds, time, modelled energy and transmission by type."""
        shares = self.kept_share()
        figures = device_type_figures(
            self.history,
            self.type_of,
            self.type_names(),
            self.population.computation_ms,
            one_way_bytes=self.one_way(),
            kept_share=shares,
            tested=self.scheduled_tests(last=True),
        )
        return figures if shares is None else {**figures, "kept_share": shares.tolist()}

    def report_types_beyond_capacity(self, macs: Sequence[float], key: str) -> None:
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

    def one_way(self) -> np.ndarray | None:
        """Bytes that Table 4 of Moss's paper counts for each client's participation, float64 [clients].

        None where it counts those that clients upload.
        """
        return None
