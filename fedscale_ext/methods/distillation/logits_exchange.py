"""The server of methods whose clients keep their models and exchange logits of public samples: FedMD, DS-FL, FedGEMS.

In a round of the runtime, a client learns from the last target, trains on its own samples, and reports its logits. Then
the server makes the next target of them.

As traffic counts: the public samples, once for each device that takes part; the target; the logits. Passes over
public samples count as the client's work, those without gradients as forward passes.

BatchNorm's statistics, like all else, are a client's own.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.data.public import used_samples
from fedscale_ext.method import Cost, Population, State, Task, Update, WorkItem, stream
from fedscale_ext.methods.distillation.public_models import PublicModelsAggregator
from fedscale_ext.methods.personal.personal_server import PersonalModelsAggregator

Phase = Mapping[str, Any]  # of a client's work: see ``distillation/client.py``


class LogitsExchangeAggregator(PublicModelsAggregator, PersonalModelsAggregator):
    """Base of methods whose clients keep their models and exchange logits of public samples.

    Subclasses say what clients do with public samples (:meth:`phases`), of which samples they report logits
    (:meth:`answer_limit`), and what all clients learn from next (:meth:`next_target`).
    """

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models and load the public data; there is no target yet."""
        super().init_state(population, task)
        self.downloaded = torch.zeros(task.num_clients, dtype=torch.bool)  # who has the public samples
        self.rows = torch.zeros(0, dtype=torch.int64)  # of the public samples that clients learn from next
        self.target = torch.zeros(0, task.num_classes)

    # ---- what a method says ----

    @abstractmethod
    def phases(self, first: bool) -> list[Phase]:
        """What a client does with public samples before it trains; ``first``: it takes part for the first time."""

    def overrides(self, first: bool) -> dict[str, Any]:
        """Return the fields of a client's configuration that its own training sets instead of the job's keys."""
        return {}

    def answer_limit(self) -> int | None:
        """Most public samples whose logits clients report in a round, drawn anew in each; None: all of them."""
        return None

    @abstractmethod
    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """Make the target that clients learn from in the next round.

        Args:
            round: The round.
            rows: Rows of the public samples, int64 [n].
            logits: The participants' logits, [clients, n, classes].

        Returns:
            The target of these rows, [n, classes].

        """

    def smallest_cost(self) -> Cost:
        """Training the smallest type's model, and exchanging logits: the target down, the client's own up."""
        job, limit = self.config.job, self.answer_limit()
        public = used_samples(job.public_samples, job.public_fraction)
        return replace(super().smallest_cost(), bytes=min(limit or public, public) * self._row_bytes)

    @property
    def _row_bytes(self) -> int:
        return self.task.num_classes * torch.float32.itemsize

    # ---- the round ----

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant learn the last target, train the model that it keeps, and report logits."""
        return self._items_of(round, participants.tolist())

    def next_items(self) -> list[WorkItem]:
        """Work items of all clients in the next round; newcomers begin with their first phases."""
        return self._items_of(self.round + 1, range(1, self.task.num_clients + 1))

    def _items_of(self, round: int, clients: Sequence[int]) -> list[WorkItem]:
        rows, known = self._hand_out(round), self.downloaded.tolist()
        return [self._item(client, rows, first=not known[client - 1]) for client in clients]

    def _hand_out(self, round: int) -> Tensor:
        """Set what clients learn from in a round, and return the rows whose logits they report, int64 [rows]."""
        rows = self.answer_rows(round)
        labels = self._sent_labels
        more: dict[str, Tensor] = {} if labels is None else {"labels": labels}
        if len(self.rows):
            more |= {"rows": self.rows, "target": self.target}
        self.ask(rows, **more)
        return rows

    def _item(self, client: int, rows: Tensor, *, first: bool) -> WorkItem:
        phases, everything = self.phases(first), len(self.public.x)
        return self.personal_item(
            client,
            {"public": phases},
            self.overrides(first),
            trained=sum(each["epochs"] * (len(self.target) if each["told"] else everything) for each in phases),
            passed=len(rows),
            bytes=self.target.nbytes + (self._download if first else 0),
            upload=len(rows) * self._row_bytes,
        )

    @property
    def _download(self) -> int:
        """Bytes of the public samples, and of their labels where clients learn from these."""
        labels = self._sent_labels
        return self.public.x.nbytes + (0 if labels is None else labels.nbytes)

    @property
    def _sent_labels(self) -> Tensor | None:
        phases = [*self.phases(first=True), *self.phases(first=False)]
        return self.public.labels if any("labels" in phase["loss"] for phase in phases) else None

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Make the participants' logits the next target. There are no means of models that never met."""
        rows = self.answer_rows(round)
        logits = self.answers(updates)
        self.rows, self.target = rows, self.next_target(round, rows, logits).contiguous()
        self.record("agreed", float((logits.argmax(-1) == self.target.argmax(-1)).double().mean()))
        for update in updates:
            self.downloaded[update.client - 1] = True

    def answer_rows(self, round: int) -> Tensor:
        """Return the rows of the public samples whose logits clients report in a round, int64 [rows], rising."""
        count, limit = len(self.public.x), self.answer_limit()
        if limit is None:
            return torch.arange(count)
        return torch.from_numpy(np.sort(stream(self.seed, round, "public samples").permutation(count)[:limit]))

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return who has the public samples, and the target of the next round."""
        return {"downloaded": self.downloaded, "rows": self.rows, "target": self.target}, {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.downloaded, self.rows, self.target = (tensors[name] for name in ("downloaded", "rows", "target"))
