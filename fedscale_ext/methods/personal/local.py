"""Local training, the baseline without federation: each client trains a model of its own and hands nothing in.

All clients begin from the same initial weights. A client that takes part trains as many steps as one of FedAvg, from
the weights with which its last participation ended; its traffic is zero. A client is tested on its own model. One that
no round has selected yet is tested on the initial weights: ``num_participants`` of all clients gives each of them
``rounds`` times the local steps.

The server's state is the initial weights, which never change. Momentum begins anew with each participation, and
BatchNorm's statistics are the client's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedscale_ext.method import (
    About,
    ClientState,
    ClientTensors,
    Cost,
    EvaluationPlan,
    Excludes,
    Feature,
    Population,
    State,
    Task,
    Update,
    WorkItem,
    personal_version,
)
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.methods.personal.personal_models import PersonalModelExecutor, floating_tensors

KEY = "initial"  # the weights that every client begins from; no client is served them once it has trained


@dataclass(frozen=True)
class LocalParams:
    """Local training has no hyperparameters of its own."""


class LocalAggregator(FedAvgAggregator):
    """Every client trains a model of its own; nothing is exchanged (local training)."""

    about: ClassVar[About] = About("no federation")
    Params: ClassVar[type] = LocalParams
    Executor: ClassVar[type] = PersonalModelExecutor
    exchanges_models: ClassVar[bool] = False
    needs_states: ClassVar[bool] = False
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.CHANGES, "trains models that its clients keep"),
        Excludes(Feature.PRIVACY, "serves clients models that they trained alone"),
    )

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0, from which every client begins."""
        spec = self.initial_spec()
        model = self.pool.add(KEY, spec, self.initial_state(spec))
        self.report_weak(model.cost.forward_macs, "they would train it all the same")
        eligible = int(self.eligible.sum())
        if self.args.num_participants < eligible:
            self.notice(
                f"clients that no round selects keep the initial weights: num_participants {eligible} trains every "
                f"client in every round, and it is {self.args.num_participants}"
            )

    def smallest_cost(self) -> Cost:
        """Training alone: nothing travels."""
        return replace(super().smallest_cost(), bytes=0)

    def client_tensors(self) -> list[ClientTensors]:
        """Keep each client's model from round to round."""
        client_models = ClientState(self.log_dir, self.task.num_clients, {KEY: floating_tensors(self.pool[KEY].state)})
        return [*super().client_tensors(), client_models]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train its own model, of which nothing travels."""
        return [WorkItem(int(client), KEY, bytes=0) for client in participants]

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Average nothing: the clients' models are stored already."""

    def evaluation_plan(self) -> EvaluationPlan:
        """Test every client on its own model. There is no global one."""
        return EvaluationPlan([personal_version(KEY)] * self.task.num_clients)
