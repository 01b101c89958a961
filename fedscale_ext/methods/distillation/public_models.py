"""What servers share that hold public data: these, a model of the server's own, and logits of the round's clients.

The server of FedDF and Fed-ET distils alone: clients train the model of their type and know nothing of public data. It
needs every participant's logits of its public samples. Executors compute them, as they have the models at hand. This
counts as the server's work, and neither as the devices' nor as traffic.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.method import (
    ClientTensors,
    EvaluationPlan,
    Excludes,
    Feature,
    Population,
    ReturnedTensors,
    SharedTensors,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
    models,
    torch_stream,
)
from fedscale_ext.methods.device_types import DeviceTypesAggregator
from fedscale_ext.methods.distillation.client import LOGITS, LogitsClient
from fedscale_ext.methods.distillation.fitting import Fit, LossOf, fit

SERVER = "server"  # key of the server's own model, where a method has one


class Logits(ReturnedTensors):
    """Logits of the round's clients, float32 [num_rows, classes] each."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.num_rows, self._classes = 0, classes

    def template(self, key: str) -> State:  # noqa: D102
        return {LOGITS: torch.zeros(self.num_rows, self._classes)}


class PublicModelsAggregator(DeviceTypesAggregator):
    """Base of methods whose server holds public data.

    ``public``: the data; ``shared``: the tensors that all clients get; ``client_logits``: logits of the participants.
    """

    Client: ClassVar[type] = LogitsClient
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.PRIVACY, "learns from the logits of each client's model"),
    )
    needs_labels: ClassVar[bool] = False  # whether public data must have the clients' classes
    has_server_model: ClassVar[bool] = False  # that of the configuration's ``model``

    def init_state(self, population: Population, task: Task) -> None:
        """Create a model for each type, load the public data, and create the server's model if there is one."""
        super().init_state(population, task)
        self.public = self.public_data()
        if self.needs_labels and self.public.labels is None:
            raise UserError(
                f"method {self.config.job.method} needs labels of the public data, which are "
                f"{self.public.description}: give public data of the clients' classes"
            )
        self.notice(f"the public data are {self.public.description}")
        if self.has_server_model:
            self.check_key_is_free(SERVER, "the server's own model")
            spec = self.initial_spec()
            self.pool.add(SERVER, spec, models.initial_state(spec, torch_stream(self.seed, SERVER)))

    def client_tensors(self) -> list[ClientTensors]:
        """Send public samples to all clients, and receive their logits."""
        self.shared = SharedTensors()
        self.client_logits = Logits(self.task.num_classes)
        return [*super().client_tensors(), self.shared, self.client_logits]

    def ask(self, rows: Tensor, /, **more: Tensor) -> None:
        """Have all participants report logits of the public samples at ``rows``; ``more`` goes out with them."""
        self.shared.set_tensors({"x": self.public.x, "asked": rows, **more})
        self.client_logits.num_rows = len(rows)

    def answers(self, updates: Sequence[Update]) -> Tensor:
        """Logits of the round's participants, [updates, num_rows, classes]."""
        return torch.stack([self.client_logits.of[update.client][LOGITS] for update in updates])

    def train_server(self, round: int, state: State, x: Tensor, loss: LossOf, how: Fit) -> State:
        """Train the server's model on public samples.

        Args:
            round: The round, which keys the order of batches.
            state: The state to start from.
            x: Public samples [n, C, H, W].
            loss: The loss of logits by rows.
            how: Optimiser and number of steps.

        Returns:
            The trained state, or ``state`` where training diverged.

        """
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
        """Record and report the models that diverged on public samples, and so are as before."""
        self.record("diverged", keys)
        if keys:
            self.notice(
                f"round {round}: models that diverged on public samples are as they were before these: "
                f"{', '.join(keys)}; lower {self.config.job.method}.lr"
            )

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve clients the models of their types; test the server's model on all test samples."""
        plan = super().evaluation_plan()
        return EvaluationPlan(plan.serve, {**plan.named, **({SERVER: SERVER} if self.has_server_model else {})})

    def results(self) -> dict[str, Any]:
        """Report figures by type, and which public data the job used."""
        return {**super().results(), "public_data": self.public.description}


class EnsembleAggregator(PublicModelsAggregator):
    """Base of methods whose server distils from the round's models (FedDF, Fed-ET).

    A type without participants keeps its model.
    """

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train the model of its type."""
        self.ask(torch.arange(len(self.public.x)))
        return super().assign(round, participants)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Give each type its mean, after the server has distilled the ensemble."""
        forward_macs = (self.pool[update.item.model].cost.forward_macs for update in updates)
        self.mac_counter.add(len(self.public.x) * sum(forward_macs))  # of the ensemble's logits
        for key, state in self.distilled(round, means, self.answers(updates), updates).items():
            self.pool.update(key, state)

    def distilled(
        self, round: int, means: Mapping[str, State], logits: Tensor, updates: Sequence[Update]
    ) -> dict[str, State]:
        """Distil the ensemble of participants.

        Args:
            round: The round.
            means: Mean state of each type that took part.
            logits: The participants' logits of the public samples, [updates, n, classes].
            updates: The participants' updates, in the order of the logits.

        Returns:
            New states of the types.

        """
        raise NotImplementedError
