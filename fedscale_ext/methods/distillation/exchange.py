"""The server of methods whose clients keep their models and exchange logits of public samples: FedMD, DS-FL, FedGEMS.

Of a round that the runtime knows, a client's part is: learn what everybody was told last, train on its own samples, say
its logits. Then the server makes of them what it will tell next. A model never travels, in words: executors are handed
it, as they stand for devices, and it does not count as traffic. What counts: the public samples, once for each device
that takes part, what it is told, and its logits. The passes over public samples count as its work, a pass without
gradients as a third of one with them.

BatchNorm's statistics, like all else, are a client's own. A client that has not taken part yet has the model of its
type as it began, which all of that type share.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.method import (
    ClientTensors,
    EvaluationPlan,
    Excludes,
    Feature,
    OwnTensors,
    Population,
    State,
    Task,
    Update,
    WorkItem,
    own_version,
    stream,
)
from fedscale_ext.methods.distillation.public_models import SERVER, PublicModelsAggregator
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.population.clock import TRAINING_FACTOR

Phase = Mapping[str, Any]  # of a client's work: see ``distillation/client.py``


class LogitsExchangeAggregator(PublicModelsAggregator):
    """Base of such methods. They say what clients do with public samples (:meth:`phases`), on which of them the round's
    clients shall agree (:meth:`answer_rows`), and what everybody is told of them (:meth:`next_target`).
    """

    excludes: ClassVar[tuple[Excludes, ...]] = (Excludes(Feature.CHANGES, "trains models that its clients keep"),)

    def init_state(self, population: Population, task: Task) -> None:
        """Models and public data; nobody has been told anything."""
        super().init_state(population, task)
        self.downloaded = torch.zeros(task.num_clients, dtype=torch.bool)  # who has the public samples
        self.rows = torch.zeros(0, dtype=torch.int64)  # of what everybody is told next
        self.target = torch.zeros(0, task.num_classes)

    def client_tensors(self) -> list[ClientTensors]:
        """The clients' models."""
        templates = {key: floating_tensors(self.pool[key].state) for key in self.keys}
        return [*super().client_tensors(), OwnTensors(self.log_dir, self.task.num_clients, templates)]

    # ---- what a method says ----

    @abstractmethod
    def phases(self, first: bool) -> list[Phase]:
        """What a client does with public samples before it trains; ``first``: it takes part for the first time."""

    def objective(self, first: bool) -> dict[str, Any]:
        """Of its own training, beside the job's keys."""
        return {}

    def answer_rows(self, round: int) -> Tensor:
        """Rows of the public samples whose logits are wanted; all."""
        return torch.arange(len(self.public.x))

    @abstractmethod
    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """What everybody will be told of these rows [n, classes], from the clients' logits [clients, n, classes]."""

    # ---- the round ----

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody learns what was told, trains the model that it keeps, and says its logits."""
        rows = self._hand_out(round)
        return [self._item(client, rows, first=not self.downloaded[client - 1]) for client in participants.tolist()]

    def _hand_out(self, round: int) -> Tensor:
        """Let clients have what they learn from in a round; the rows of which they say logits."""
        rows = self.answer_rows(round)
        more: dict[str, Tensor] = {} if self.public.labels is None else {"labels": self.public.labels}
        if len(self.rows):
            more |= {"rows": self.rows, "target": self.target}
        self.ask(rows, **more)
        return rows

    def next_items(self) -> list[WorkItem]:
        """They learn what the server says now; who has not taken part yet begins with what comes first."""
        rows = self._hand_out(self.round + 1)
        return [self._item(client + 1, rows, first=not known) for client, known in enumerate(self.downloaded.tolist())]

    def _item(self, client: int, rows: Tensor, *, first: bool) -> WorkItem:
        phases, objective = self.phases(first), self.objective(first)
        everything = len(self.public.x)
        through = sum(each["epochs"] * (len(self.rows) if each["told"] else everything) for each in phases)
        seen = float(self.task.step_sizes(client, objective).sum())
        effort = 1.0 + (through + len(rows) / TRAINING_FACTOR) / seen
        down = self.target.nbytes + (self._download if first else 0)
        up = len(rows) * self.task.num_classes * self.target.itemsize
        key = self.keys[self.type_of[client - 1]]
        return WorkItem(client, key, {**objective, "public": phases}, effort=effort, bytes=down, upload=up)

    @property
    def _download(self) -> int:
        """Bytes of the public samples."""
        return self.public.x.nbytes + (self.public.labels.nbytes if self.public.labels is not None else 0)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """What the clients said becomes what everybody will be told; means of models that never met play no part."""
        rows = self.answer_rows(round)
        logits = self.answers(updates)
        self.rows, self.target = rows, self.next_target(round, rows, logits).contiguous()
        self.record("agreed", float((logits.argmax(-1) == self.target.argmax(-1)).double().mean()))
        for update in updates:
            self.downloaded[update.client - 1] = True

    def drawn(self, round: int, limit: int) -> Tensor:
        """Rows of ``limit`` public samples of this round's own, or of all where there are fewer."""
        count = len(self.public.x)
        rows = stream(self.seed, round, "public samples").permutation(count)[: min(limit, count)]
        return torch.from_numpy(np.sort(rows))

    def evaluation_plan(self) -> EvaluationPlan:
        """Every client is served the model that it keeps; the server's is tested beside, on everybody's samples."""
        served = [own_version(self.keys[index]) for index in self.type_of.tolist()]
        return EvaluationPlan(served, {SERVER: SERVER} if self.has_server_model else {})

    def usual(self, *, first: bool) -> list[WorkItem]:
        """At first with the public samples, and what else comes first."""
        rows = self.answer_rows(1)
        return [self._item(client + 1, rows, first=first) for client in range(self.task.num_clients)]

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Who has the public samples, and what everybody is told next."""
        return {"downloaded": self.downloaded, "rows": self.rows, "target": self.target}, {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Take it back."""
        self.downloaded, self.rows, self.target = (tensors[name] for name in ("downloaded", "rows", "target"))
