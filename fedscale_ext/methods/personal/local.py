"""Local training, the baseline without federation: each client trains a model of its own and hands nothing in.

All clients have one model, or devices come in types, each with an architecture of its own. All clients of a model begin
from the same initial weights. A client that takes part trains as many steps as one of FedAvg, from
the weights with which its last participation ended; its traffic is zero. A client is tested on its own model. One that
no round has selected yet is tested on the initial weights: ``num_participants`` of all clients gives each of them
``rounds`` times the local steps.

With ``types``, this is the floor of methods whose clients keep models of any architecture (``methods/exchange``).

The server's state is the initial weights, which never change. Momentum begins anew with each participation, and
BatchNorm's statistics are the client's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedscale_ext.method import (
    About,
    Cost,
    Excludes,
    Feature,
    JobConfig,
    ModelSpec,
    Population,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
)
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.personal.personal_server import PersonalModelsAggregator

INITIAL = "initial"  # key of the weights that every client begins from; no client is served them once it has trained


@dataclass(frozen=True)
class LocalParams(DeviceTypesParams):
    """Hyperparameters of local training. Without ``types``, all clients train the job's model; see the base."""

    method: ClassVar[str] = "local"
    needs_public: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("groups", "ranges"):
            if getattr(self, name) and not self.types:
                raise UserError(f"local.{name} deals types to clients, and local.types names none; give it, too")

    def missing_settings(self, config: JobConfig) -> list[str]:
        """Nothing: without types there is the job's model."""
        return []


class LocalAggregator(PersonalModelsAggregator):
    """Every client trains a model of its own; nothing is exchanged (local training)."""

    about: ClassVar[About] = About("no federation")
    Params: ClassVar[type] = LocalParams
    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.PRIVACY, "serves clients models that they trained alone"),
    )

    @property
    def keys(self) -> list[str]:
        """Keys of the types; without types, that of the job's model."""
        return super().keys or [INITIAL]

    def type_specs(self) -> dict[str, ModelSpec]:
        """Spec of each type's model, by key; without types, the job's model."""
        return super().type_specs() or {INITIAL: self.initial_spec()}

    def init_state(self, population: Population, task: Task) -> None:
        """Create w_0 of each model, from which every client begins."""
        if self.params.types:
            super().init_state(population, task)
        else:
            spec = self.initial_spec()
            model = self.pool.add(INITIAL, spec, self.initial_state(spec))
            self.type_of = np.zeros(task.num_clients, dtype=np.int64)
            self.report_weak(model.cost.forward_macs, "they would train it all the same")
        eligible = int(self.eligible.sum())
        if self.args.num_participants < eligible:
            online = " that is online" if self.args.device_avail_file else ""
            self.notice(
                "clients that no round selects, or that are late in each, keep the initial weights: num_participants "
                f"{eligible} trains every client{online} in every round, and it is {self.args.num_participants}"
            )

    def smallest_cost(self) -> Cost:
        """Training alone: nothing travels."""
        return replace(super().smallest_cost(), bytes=0)

    def item_of(self, client: int) -> WorkItem:
        """Let a client train its own model, of which nothing travels."""
        return WorkItem(client, self.keys[self.type_of[client - 1]], bytes=0)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Average nothing: the clients' models are stored already."""

    def results(self) -> dict[str, Any]:
        """Report accuracy, rounds, time and modelled energy by type, where there are types."""
        return super().results() if self.params.types else {}
