"""What servers share that hold public data: these, a model of the server's own, and logits of the round's clients.

The server of FedDF and Fed-ET distils alone: clients train the model of their type and know nothing of public data. It
needs every participant's logits of its public samples. Executors compute them, as they have the models at hand. This
counts neither as the devices' work nor as traffic.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.streams import torch_stream
from fedscale_ext.method import (
    ClientTensors,
    EvaluationPlan,
    Excludes,
    Feature,
    Population,
    Shared,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
)
from fedscale_ext.methods.device_types import DeviceTypesAggregator
from fedscale_ext.methods.distillation.client import LOGITS, LogitsExecutor
from fedscale_ext.methods.distillation.fitting import Fit, LossOf, fit
from fedscale_ext.tasks.client_tensors import Returned

SERVER = "server"  # key of the server's own model, where a method has one


class Logits(Returned):
    """What the models of the round's clients say, ``of`` each: float32 [asked, classes]."""

    def __init__(self, folder: Path, clients: int, classes: int) -> None:
        super().__init__(folder / self.kind, clients)
        self.num_rows, self._classes = 0, classes
        self.of: dict[int, Tensor] = {}

    def begin(self, items: Sequence[WorkItem]) -> None:  # noqa: D102
        self.of.clear()

    def template(self, key: str) -> State:  # noqa: D102
        return {LOGITS: torch.zeros(self.num_rows, self._classes)}

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        self.of[item.client] = new[LOGITS]


class PublicModelsAggregator(DeviceTypesAggregator):
    """Base of such methods: ``public`` data, ``shared`` (what everybody is handed), and what clients ``said``."""

    Executor: ClassVar[type] = LogitsExecutor
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.PRIVACY, "learns from the logits of each client's model"),
    )
    needs_labels: ClassVar[bool] = False  # whether public data must have the clients' classes
    has_server_model: ClassVar[bool] = False  # that of the configuration's ``model``

    def init_state(self, population: Population, task: Task) -> None:
        """A model for each type; the public data; where there is one, the server's model."""
        super().init_state(population, task)
        self.public = self.public_data()
        if self.needs_labels and self.public.labels is None:
            raise UserError(
                f"method {self.config.job.method} needs labels of the public data, which are {self.public.says}: give "
                "public data of the clients' classes"
            )
        self.notice(f"the public data are {self.public.says}")
        if self.has_server_model:
            if SERVER in self.keys:
                raise UserError(f"a type is called {SERVER!r}, as the server's own model is; rename its spec file")
            spec = self.initial_spec()
            self.pool.add(SERVER, spec, models.initial_state(spec, torch_stream(self.seed, SERVER)))

    def client_tensors(self) -> list[ClientTensors]:
        """What everybody is handed, and what they say."""
        clients = self.task.num_clients
        self.shared = Shared(self.log_dir, clients)
        self.client_logits = Logits(self.log_dir, clients, self.task.num_classes)
        return [*super().client_tensors(), self.shared, self.client_logits]

    def ask(self, rows: Tensor, /, **more: Tensor) -> None:
        """Let everybody say logits of the public samples at ``rows``; ``more`` is handed out beside these."""
        self.shared.place({"x": self.public.x, "asked": rows, **more})
        self.client_logits.num_rows = len(rows)

    def answers(self, updates: Sequence[Update]) -> Tensor:
        """Logits [updates, asked, classes] of the round's clients."""
        return torch.stack([self.client_logits.of[update.client] for update in updates])

    def train_server(self, round: int, state: State, x: Tensor, loss: LossOf, how: Fit) -> State:
        """The server's model, from ``state``, learns of public samples x; what it has become. Where it diverges, it
        stays in ``state``."""
        try:
            fitted = fit(self.pool[SERVER].spec, state, x, loss, how, torch_stream(self.seed, round, SERVER))
            state = fitted.state
            self.record("server_loss", fitted.loss)
            self.report_diverged(round, [])
        except FloatingPointError:
            self.report_diverged(round, [SERVER])
        self.pool.update(SERVER, state)
        return state

    def report_diverged(self, round: int, keys: list[str]) -> None:
        """Which models diverged when they learnt of public samples, and so are as before: a figure of the round."""
        self.record("diverged", keys)
        if keys:
            self.notice(
                f"round {round}: models that diverged on public samples are as they were before these: "
                f"{', '.join(keys)}; lower {self.config.job.method}.lr"
            )

    def evaluation_plan(self) -> EvaluationPlan:
        """As for types of devices; the server's model is tested beside, on everybody's samples."""
        plan = super().evaluation_plan()
        return EvaluationPlan(plan.serve, {**plan.named, **({SERVER: SERVER} if self.has_server_model else {})})

    def results(self) -> dict[str, Any]:
        """By type, and what the public data were."""
        return {**super().results(), "public_data": self.public.says}


class EnsembleAggregator(PublicModelsAggregator):
    """Base of methods whose server distils from the round's models (FedDF, Fed-ET).

    A type without participants keeps its model.
    """

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Everybody trains the model of its type."""
        self.ask(torch.arange(len(self.public.x)))
        return super().assign(round, participants)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Each type's mean, and what the server makes of it and of the ensemble."""
        for key, state in self.distilled(round, means, self.answers(updates), updates).items():
            self.pool.update(key, state)

    def distilled(
        self, round: int, means: Mapping[str, State], logits: Tensor, updates: Sequence[Update]
    ) -> dict[str, State]:
        """New states of the types, from the mean of each that took part and the logits of the public samples
        [updates, n, classes] that the participants' models gave."""
        raise NotImplementedError
