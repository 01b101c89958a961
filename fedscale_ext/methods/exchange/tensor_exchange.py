"""The server of methods whose clients keep their models and exchange small tensors, without public data.

In a round, participants receive the server's message (:meth:`TensorExchangeAggregator.message`), train the models that
they keep, and send tensors that describe these (:meth:`TensorExchangeAggregator.template`). Then the server makes the
next message of them. Tests of clients' models use the message of the round that has just ended.

As traffic counts: the message's bytes when it is sent, and the bytes that a client really sends. A client without
samples of a class sends nothing for it, which only its answer tells: until a client has answered once, the virtual
clock counts all classes. Work beside the steps counts, too: a pass over the client's samples after training, for its
means by class, is an epoch of forward passes.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedscale_ext.method import (
    ClientTensors,
    Cost,
    CountOrZero,
    Excludes,
    Feature,
    ModelSpec,
    Population,
    ReturnedTensors,
    SharedTensors,
    State,
    Task,
    Update,
    UserError,
    WorkItem,
)
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.personal.personal_models import bytes_of
from fedscale_ext.methods.personal.personal_server import PersonalModelsAggregator
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.layers.final_layer import FinalLayer, final_layer
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.transport import wire


@dataclass(frozen=True)
class TensorExchangeParams(DeviceTypesParams):
    """Hyperparameters of methods whose clients keep models and exchange small tensors; see the base for ``types``."""

    needs_public: ClassVar[bool] = False


@dataclass(frozen=True)
class FeaturesParams(TensorExchangeParams):
    """Hyperparameters of methods that need features of one width of all types' models.

    Attributes:
        representation: Width of a representation that each type's model gets before its last layer. With 0, models
            stay as they are, and their last layers must have equally many inputs.

    """

    representation: CountOrZero = 0


class SentTensors(ReturnedTensors):
    """Tensors that the round's clients sent, and how many bytes each client sent last.

    Where a client sends ``counts`` of its samples by class, each other tensor has a row for each class. Rows of classes
    without samples are not sent; here they are zero.

    Args:
        task: Sizes of the clients' data.
        templates: Names, shapes and types of the tensors, by key of the model.
        counted: Number of a client's samples that ``counts`` has, by work item.
        by_class: Whether tensors beside ``counts`` have a row for each class.

    """

    def __init__(
        self,
        task: Task,
        templates: Mapping[str, State],
        counted: Callable[[WorkItem], int],
        *,
        by_class: bool = True,
    ) -> None:
        super().__init__()
        self._templates, self._counted, self._by_class = templates, counted, by_class
        self.num_bytes = torch.full((task.num_clients,), -1)  # -1: has not sent anything yet

    def template(self, key: str) -> State:  # noqa: D102
        return self._templates[key]

    def checked(self, item: WorkItem, section: wire.Section | None) -> State:  # noqa: D102
        new = super().checked(item, section)
        counts = new.get(COUNTS)
        if counts is not None and (counts.min() < 0 or counts.sum() != self._counted(item)):
            raise Rejected("its numbers of samples by class are not those of its samples")
        return new

    def take(self, round: int, item: WorkItem, new: State) -> None:  # noqa: D102
        super().take(round, item, new)
        self.num_bytes[item.client - 1] = bytes_sent(new) if self._by_class else bytes_of(new)

    def upload_bytes(self, item: WorkItem) -> int:
        """Return the bytes that a client sent last; at first those of all classes."""
        last = int(self.num_bytes[item.client - 1])
        return self.most(item.model) if last < 0 else last

    def state(self) -> tuple[State, dict[str, Any]]:  # noqa: D102
        return {"num_bytes": self.num_bytes}, {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:  # noqa: D102
        self.num_bytes = tensors["num_bytes"].clone()


def bytes_sent(tensors: State) -> int:
    """Return the bytes of what a client sends: counts by class, and the rows of the classes that it has."""
    if COUNTS not in tensors:
        return bytes_of(tensors)
    counts = tensors[COUNTS]
    rows = bytes_of(tensors) - counts.nbytes
    return counts.nbytes + rows // len(counts) * int((counts > 0).sum())


class TensorExchangeAggregator(PersonalModelsAggregator):
    """Base of methods whose clients keep their models and exchange small tensors.

    ``sent_tensors``: what the round's clients sent.
    """

    excludes: ClassVar[tuple[Excludes, ...]] = (
        Excludes(Feature.PRIVACY, "learns from what each client's model makes of its samples"),
    )
    passes_after: ClassVar[int] = 1  # over a client's samples without gradients, for what it sends
    by_class: ClassVar[bool] = True  # whether tensors that are sent with counts have a row for each class

    # ---- what a method says ----

    @abstractmethod
    def template(self, spec: ModelSpec) -> State:
        """Return zeros of the names, shapes and types of what a client with a model of ``spec`` sends."""

    @abstractmethod
    def message(self) -> State:
        """Return what clients receive now, in training and in tests; classes that nobody knows are left out."""

    @abstractmethod
    def learn(self, round: int, updates: Sequence[Update], sent: Sequence[State]) -> None:
        """Learn from what the round's clients sent, in the order of ``updates``."""

    def message_for(self, client: int) -> State:
        """Return all that a client receives now; what is its own beside the message is sent by ``ReceivedTensors``."""
        return self.message()

    def objective(self) -> dict[str, Any]:
        """Return what clients know of the hyperparameters, as JSON."""
        return {}

    def overrides(self) -> dict[str, Any]:
        """Return the fields of a client's configuration that the coming round sets instead of the job's keys."""
        return {}

    def counted(self, item: WorkItem) -> int:
        """Return the number of a client's samples that it counts by class."""
        return int(self.task.train_sizes[item.client - 1])

    def work_beside(self, client: int) -> float:
        """Return a client's work beside its steps in the coming round, as the number of samples of as much training."""
        return 0.0

    def passes_beside(self, client: int) -> float:
        """Return the samples that a client's model only passes forward in the coming round, without gradients."""
        return self.passes_after * float(self.task.train_sizes[client - 1])

    # ---- the round ----

    def init_state(self, population: Population, task: Task) -> None:
        """Create a model for each type, and deal the types to clients."""
        for spec in self.type_specs().values():
            final_layer(spec)  # UserError where there is none
        super().init_state(population, task)

    def smallest_cost(self) -> Cost:
        """Training the smallest type's model, and sending what belongs to it."""
        return replace(super().smallest_cost(), bytes=bytes_of(self.template(self.smallest_spec())))

    def client_tensors(self) -> list[ClientTensors]:
        """Send the message to all clients, and receive what they send."""
        self.shared = SharedTensors(tested=True)
        templates = {key: self.template(self.pool[key].spec) for key in self.keys}
        self.sent_tensors = SentTensors(self.task, templates, self.counted, by_class=self.by_class)
        self.publish()
        return [*super().client_tensors(), self.shared, self.sent_tensors]

    def publish(self) -> None:
        """Send the message as it is now from now on."""
        self.shared.set_tensors(self.message())

    def item_of(self, client: int) -> WorkItem:
        """Let a client train the model that it keeps."""
        return self.personal_item(
            client,
            self.objective(),
            self.overrides(),
            trained=self.work_beside(client),
            passed=self.passes_beside(client),
            bytes=bytes_of(self.message_for(client)),
        )

    def upload_bytes(self, item: WorkItem) -> int:
        """Bytes that a client sends; in a round's record those that it has sent."""
        return self.sent_tensors.upload_bytes(item)

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Learn from what clients sent. There are no means of models that never met."""
        self.learn(round, updates, [self.sent_tensors.of[update.client] for update in updates])
        self.publish()

    def test_objective(self) -> Mapping[str, Any]:
        """Clients know the same of the hyperparameters in tests as in training."""
        return self.objective()


class SharedFeaturesAggregator(TensorExchangeAggregator):
    """Base of methods that need features of one width; their ``Params`` extend :class:`FeaturesParams`."""

    def type_specs(self) -> dict[str, ModelSpec]:
        """Spec of each type's model, with the representation where it is asked for."""
        width = self.params.representation
        return {key: headed(spec, width) if width else spec for key, spec in super().type_specs().items()}

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models, after a check of their widths."""
        self.width = self.common_width(list(self.type_specs().values()))
        super().init_state(population, task)

    def common_width(self, specs: Sequence[ModelSpec]) -> int:
        """Return the width of all types' features; UserError where they differ."""
        widths = [final_layer(spec).width for spec in specs]
        if len(set(widths)) > 1:
            name = self.config.job.method
            raise UserError(
                f"method {name} needs features of one width, and its types have "
                f"{', '.join(f'{width} ({key})' for width, key in zip(widths, self.keys, strict=True))}: set "
                f"{name}.representation to a width that all of them get, or choose other types"
            )
        return widths[0]

    def final_layer(self, key: str) -> FinalLayer:
        """Return the last layer of a type's model."""
        return final_layer(self.pool[key].spec)


def mean_by_class(rows: Sequence[Tensor], counts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean of the clients' rows of each class, weighted by their samples of it.

    Args:
        rows: Rows [classes, ...] of each client.
        counts: Samples of each class, int32 [classes] of each client.

    Returns:
        The means [classes, ...], zero for a class that no client has, and the classes' samples int64 [classes].

    """
    total = torch.zeros_like(rows[0], dtype=torch.float64)
    for row, count in zip(rows, counts, strict=True):
        total += row.double() * _as_column(count, row)
    everything = torch.stack(list(counts)).sum(0)
    return (total / _as_column(everything.clamp(min=1), total)).to(rows[0].dtype), everything


def _as_column(values: Tensor, rows: Tensor) -> Tensor:
    return values.double().view(-1, *[1] * (rows.dim() - 1))
