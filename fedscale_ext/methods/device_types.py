"""What methods share whose devices come in types, each with an architecture of its own: types, and who has which.

These are Moss and the distillation systems that it is measured against, which learn from public data, and the methods
of ``methods/exchange``, which do not.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedscale_ext.method import (
    EvaluationPlan,
    JobConfig,
    ModelSpec,
    Population,
    Task,
    UserError,
    WorkItem,
    models,
    personal_version,
)
from fedscale_ext.methods.groups import check_dealt, check_total, deal
from fedscale_ext.methods.type_figures import TypeFiguresAggregator
from fedscale_ext.server.announcements import ModelChoice

_RANGE = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class DeviceTypesParams:
    """Hyperparameters of methods whose devices come in types, each with a model of its own.

    A device has the largest model whose MACs it affords. ``groups`` or ``ranges`` deal the models otherwise.

    Attributes:
        types: Names or spec files of the types' models, as in [resnet18, mobilenetv2].
        groups: Number of clients of each type, in the order of ``types``. The weakest devices, or those first by
            ``groups_by``, get the model of fewest MACs.
        ranges: Clients of each type, as 1-100, by their positions in the data. The order is that of ``types``.

    """

    types: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()
    ranges: tuple[str, ...] = ()

    method: ClassVar[str]
    needs_public: ClassVar[bool] = True  # whether the server learns from public samples

    def __post_init__(self) -> None:
        if self.types:  # missing_settings reports them with the other missing keys
            check_dealt(self.method, "types", [type_key(name) for name in self.types], self.groups, self.ranges)

    def missing_settings(self, config: JobConfig) -> list[str]:
        """Keys that the job must set for such a method and does not, each with its meaning."""
        missing = [] if self.types else [f"{self.method}.types (the types' models, as in [resnet18, mobilenetv2])"]
        if config.job.public_samples or not self.needs_public:
            return missing
        return [*missing, "public_samples (how many the server learns from)"]


def type_key(name: str) -> str:
    """Key of a type: the name of its model, or of the spec file."""
    return Path(name).stem if name.endswith(".json") else name


class DeviceTypesAggregator(TypeFiguresAggregator):
    """Base of methods whose devices come in types; their ``Params`` extend :class:`DeviceTypesParams`.

    The pool holds a model for each type. Clients of the type train it and are served it.
    """

    @property
    def keys(self) -> list[str]:
        """Keys of the types."""
        return [type_key(name) for name in self.params.types]

    def type_names(self) -> Sequence[str]:
        """The keys of the types."""
        return self.keys

    def type_specs(self) -> dict[str, ModelSpec]:
        """Spec of each type's model, by key."""
        return {type_key(name): self.trained_spec(name) for name in self.params.types}

    def smallest_spec(self) -> ModelSpec:
        """Spec of the type with the fewest MACs, unless ``capacity_model`` names another model."""
        if self.config.job.capacity_model is not None:
            return super().smallest_spec()
        return min(self.type_specs().values(), key=lambda spec: models.cost(spec).forward_macs)

    def init_state(self, population: Population, task: Task) -> None:
        """Create a model for each type, and deal the types to clients."""
        for key, spec in self.type_specs().items():
            self.pool.add(key, spec, models.initial_state(spec, self.seed))
        self.deal_types()

    def deal_types(self) -> None:
        """Deal the types to clients, and report how many clients have which."""
        self.costs = [models.cost(spec) for spec in self.type_specs().values()]
        self.type_of = self._types_of_clients()
        if self.params.groups or self.params.ranges:
            self._report_unaffordable_types()
        choices = [ModelChoice(key, cost) for key, cost in zip(self.keys, self.costs, strict=True)]
        self.report_assignment(choices, self.type_of)

    def _types_of_clients(self) -> np.ndarray:
        """Index of each client's type, int64 [clients]."""
        if self.params.ranges:
            return self._by_ranges(self.params.ranges)
        macs = np.array([cost.forward_macs for cost in self.costs])
        if self.params.groups:
            check_total(f"{self.params.method}.groups", self.params.groups, self.task.num_clients)
            return deal(self.dealing_order(), macs, self.params.groups)
        return self._by_capacity(macs)

    def _by_capacity(self, macs: np.ndarray) -> np.ndarray:
        largest_first = np.argsort(-macs, kind="stable")
        affords = self.capacity[:, None] >= macs[largest_first]
        name = self.config.job.method
        for index, able in zip(largest_first, affords.T, strict=True):
            if not able.any():
                by_deadline = self.config.job.capacity_rule == "deadline"
                raise UserError(
                    f"no device affords type {self.keys[index]}: it takes {macs[index]:,.0f} MACs per sample and the "
                    f"strongest device has {self.capacity.max():,.0f}; raise "
                    f"{'deadline_s' if by_deadline else 'capacity_spread'}, or say how many devices have each type by "
                    f"{name}.groups"
                )
        self.report_weak(float(macs.min()), "they have its type all the same")
        affords[:, -1] = True  # with a large capacity_model, too, nobody is left out
        types: np.ndarray = largest_first[affords.argmax(axis=1)]
        for index, key in enumerate(self.keys):
            if not (types == index).any():
                raise UserError(
                    f"type {key} has no device: whoever affords it affords a larger type too; leave it out, lower "
                    f"deadline_s, or say how many devices have each type by {name}.groups"
                )
        return types

    def _report_unaffordable_types(self) -> None:
        """Report types beyond what devices afford: groups and ranges deal types whatever that is."""
        key = f"{self.params.method}.{'groups' if self.params.groups else 'ranges'}"
        self.report_types_beyond_capacity([cost.forward_macs for cost in self.costs], key)
        strongest = self.capacity.max()
        dear = [key for key, cost in zip(self.keys, self.costs, strict=True) if cost.forward_macs > strongest]
        if dear:
            self.notice(
                f"no device affords {' or '.join(dear)} (the strongest has {strongest:,.0f} MACs per sample): "
                f"{key} says who has it all the same"
            )

    def _by_ranges(self, ranges: Sequence[str]) -> np.ndarray:
        key, clients = f"{self.params.method}.ranges", self.task.num_clients
        types = np.full(clients, -1, dtype=np.int64)
        for index, text in enumerate(ranges):
            match = _RANGE.fullmatch(text)
            first, last = (int(match[1]), int(match[2])) if match else (0, 0)
            if not 1 <= first <= last <= clients:
                raise UserError(
                    f"{key} has {text!r}; write positions of clients, as 1-100, among the {clients} of the data"
                )
            if (types[first - 1 : last] >= 0).any():
                raise UserError(f"{key} gives a client two types: {text} overlaps another range")
            types[first - 1 : last] = index
        if (types < 0).any():
            client = int(np.argmax(types < 0)) + 1
            named = f" ({self.task.name_of(client)})" if self.task.client_names else ""
            raise UserError(f"{key} leaves out client {client}{named}; give every one of them a type")
        return types

    def check_key_is_free(self, key: str, model: str) -> None:
        """Raise UserError if a type has the key of another model, which ``model`` describes."""
        if key in self.keys:
            raise UserError(f"a type is called {key!r}, as {model} is; rename its spec file")

    def personal_keys(self) -> list[str]:
        """Return what serves each client the model that it keeps, by client."""
        return [personal_version(self.keys[index]) for index in self.type_of.tolist()]

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Let each participant train the model of its type."""
        return [self.item_of(client) for client in participants.tolist()]

    def item_of(self, client: int) -> WorkItem:
        """The work item of a client: the model of its type."""
        return WorkItem(client, self.keys[self.type_of[client - 1]])

    def expected_shares(self) -> dict[str, float]:
        """Share of each type among the clients that may train."""
        counts = np.bincount(self.type_of[self.eligible], minlength=len(self.keys))
        return dict(zip(self.keys, (counts / counts.sum()).tolist(), strict=True))

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client the model of its type; test each model on all test samples, too."""
        return EvaluationPlan([self.keys[index] for index in self.type_of.tolist()], {key: key for key in self.keys})
