"""The words of one round as data: what is handed out, what comes back, what is evaluated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from fedscale_ext.core.auc import Auc
from fedscale_ext.core.client_config import FIELDS, OVERRIDABLE
from fedscale_ext.core.confusion import Confusion
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.core.local_steps import DECIDES_SAMPLES, LocalSteps, local_steps, step_sizes
from fedscale_ext.core.model_spec import Cost, ModelSpec

State = dict[str, torch.Tensor]  # parameters and buffers by state_dict name, on the CPU

# One tensor's covered entries in the reference's tensor:
#   None                     all of them;
#   tuple of an index or None per axis
#                            the outer product of the axes' indices (None: the whole axis); the
#                            submodel's tensor has the lengths of the indices;
#   bool tensor              a mask of the reference's shape; the submodel's tensor has that shape too.
Index = tuple[torch.Tensor | None, ...]
Entries = Index | torch.Tensor | None

# Per tensor name; a name that is missing is not covered at all.
Coverage = Mapping[str, Entries]
IndexMap = Mapping[str, torch.Tensor]  # channel group -> int64 numbers of the channels that are kept


@dataclass(frozen=True)
class Task:
    """What the clients learn: shape and size of the job, independent of any method.

    ``train_sizes[c - 1]`` is the number of training samples of client ``c`` (clients are 1..N), and
    ``client_names[c - 1]`` the name that the data give it.
    """

    input_shape: tuple[int, int, int]
    num_classes: int
    train_sizes: np.ndarray
    test_sizes: np.ndarray
    local_steps: int
    batch_size: int
    local_epochs: int | None = None  # where given, ``local_steps`` is not: steps follow from a client's samples
    client_names: Sequence[str] = ()

    def name_of(self, client: int) -> str:
        """Return a client's name, or its number as text where names are not known."""
        return self.client_names[client - 1] if self.client_names else str(client)

    def local_training(self, client: int, overrides: Mapping[str, Any]) -> LocalSteps:
        """Return the size of a client's local training; ``overrides`` are those of its work item."""
        size = int(self.train_sizes[client - 1])
        return local_steps(size, self.batch_size, self.local_steps, self.local_epochs, overrides)

    def step_sizes(self, client: int, overrides: Mapping[str, Any]) -> np.ndarray:
        """Return the number of samples that each step of a client sees, int64 [steps].

        ``overrides`` are those of its work item.
        """
        return step_sizes(*self.local_training(client, overrides))

    def samples_of(self, items: "Sequence[WorkItem]") -> np.ndarray:
        """Return the number of samples that the steps of each item see, int64 [items]."""
        seen = self.samples_seen(np.array([item.client - 1 for item in items], dtype=np.int64))
        for index, item in enumerate(items):
            if not DECIDES_SAMPLES.isdisjoint(item.overrides):
                seen[index] = self.step_sizes(item.client, item.overrides).sum()
        return seen

    def samples_seen(self, indices: np.ndarray) -> np.ndarray:
        """Return the number of samples that clients see in a round, int64 [clients].

        ``indices`` are the clients' numbers - 1, int64 [clients].
        """
        sizes = self.train_sizes[indices]
        if self.local_epochs is not None:
            return sizes * self.local_epochs
        return np.minimum(sizes, self.batch_size) * self.local_steps

    @property
    def num_clients(self) -> int:
        """Clients with training data; their ids are 1..num_clients."""
        return len(self.train_sizes)


@dataclass(frozen=True)
class WorkItem:
    """A client's share of a round: which model it trains, and how.

    A client may have several items, of different models. It trains them one after another. Numbers of NumPy become
    Python's, also those of ``objective`` and ``overrides``.

    For n samples in the item's steps, a round's record has these MACs, and the virtual clock's time of computing is
    in proportion to the last line (it counts a forward pass as a third of a step)::

        forward MACs   n * cost.forward_macs * (compute_fraction + forward_fraction)
        training MACs  n * (cost.training_macs * training_fraction + cost.forward_macs * forward_fraction)
        virtual clock  n * cost.forward_macs * (compute_fraction + forward_fraction / 3)

    Args:
        client: number of the client, from 1.
        model: key of the model in the aggregator's pool.
        objective: JSON values that only the method's client reads, as ``conf.objective``.
        overrides: fields of the client's configuration (:data:`fedscale_ext.core.client_config.OVERRIDABLE`) that
            differ from the job's keys, such as ``{"prox_mu": 0.1}``.
        compute_fraction: share of the model that a step computes.
        training_fraction: the same share for training MACs, if it differs; None: ``compute_fraction``. In narrower
            layers, forward and backward passes shrink by different factors.
        forward_fraction: further forward passes without gradients, as a share of the model's forward pass.
        bytes: traffic in each direction, if it is not the model's size.
        dropped: tensors whose change the client does not upload. They count as unchanged.
        upload: bytes that the client uploads, if fewer than ``bytes``.
        trains: whether the client trains the model. If not, as where it only sends gradients, its model stays as it
            was.

    Raises:
        UserError: if ``objective`` names a field of the client's configuration, or ``overrides`` anything else, or one
            of them is no mapping.

    """

    client: int
    model: str
    objective: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    compute_fraction: float = 1.0
    forward_fraction: float = 0.0
    training_fraction: float | None = None
    bytes: int | None = None
    dropped: Sequence[str] = ()
    upload: int | None = None
    trains: bool = True

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
        for name in ("objective", "overrides"):
            values = getattr(self, name)
            if not isinstance(values, Mapping):
                raise UserError(f"{name} of a work item is a value of type {type(values).__name__}; it must be a dict")
            if any(isinstance(value, np.generic) for value in values.values()):
                numbers = {
                    key: value.item() if isinstance(value, np.generic) else value for key, value in values.items()
                }
                object.__setattr__(self, name, numbers)
        for name in self.objective:
            if name in FIELDS:
                raise UserError(
                    f"objective of a work item: {name!r} is a field of the client's configuration; put it into "
                    "overrides, or give it another name"
                )
        for name in self.overrides:
            if name not in OVERRIDABLE:
                raise UserError(
                    f"overrides of a work item: {name!r} is none of {', '.join(sorted(OVERRIDABLE))}"
                    f"{did_you_mean(name, OVERRIDABLE)}; what only the method's client reads goes into objective"
                )

    def to_json(self) -> dict[str, Any]:
        """Return the executors' part of the item, as a unit's message has it."""
        return {
            "client": self.client,
            "model": self.model,
            "objective": dict(self.objective),
            "overrides": dict(self.overrides),
        }


@dataclass(frozen=True)
class Update:
    """What a client returned in addition to its state, already checked.

    ``samples`` is the client's number of training samples (the weight in FedAvg), ``trained`` the
    number of samples that its steps saw, ``loss`` FedScale's moving training loss (EMA 0.2 over
    the first epoch), ``utility`` Oort's (:func:`fedscale_ext.training.outcome.result`), ``norm`` that of the change of
    its parameters, before any was dropped, where the job asks for it.
    """

    item: WorkItem
    samples: int
    trained: int
    steps: int
    loss: float
    utility: float
    norm: float | None = None

    @property
    def client(self) -> int:
        """Id of the client that trained it."""
        return self.item.client


@dataclass(frozen=True)
class Part:
    """Of which model of the pool another one is a part: ``channels`` names those that it holds by channel group
    of the reference's layout (groups that are missing are whole), ``covered`` the entries that follow."""

    reference: str
    channels: IndexMap
    covered: Coverage


@dataclass
class Model:
    """An entry of the aggregator's model pool; ``version`` counts its changes of state. The state of a ``part`` is
    cut out of its reference's whenever that changes, and what clients learn on it goes into the reference's mean.
    A ``transient`` one is of this round: executors forget it after each unit, records count its clients to its whole.
    """

    key: str
    spec: ModelSpec
    state: State
    cost: Cost
    version: int = 0
    part: Part | None = None
    transient: bool = False

    @property
    def whole(self) -> str:
        """Key of the model whose mean its clients are part of: its reference's or its own."""
        return self.part.reference if self.part else self.key


class Models(Protocol):
    """Models by key: what planning needs of the aggregator's model pool."""

    def __getitem__(self, key: str) -> Model: ...


@dataclass(frozen=True)
class EvaluationPlan:
    """Who is tested on what: ``serve[c - 1]`` is the model key of client c; ``named`` are global
    models (title -> key) that are tested on the test samples of all clients. Keys joined by "+" are an
    ensemble: the mean of their models' logits counts."""

    serve: Sequence[str]
    named: Mapping[str, str] = field(default_factory=dict)


GLOBAL = "global"
"""Key in the pool of a method's one global model."""

_OWN = "@own"  # ends the key of an evaluation


def personal_version(key: str) -> str:
    """Return the key of an evaluation in which each client is tested on its personal version of a model.

    :meth:`MultiModelClient.load_personal_model` makes that version.
    """
    return key + _OWN


def is_personal(key: str) -> bool:
    """Whether a key of an evaluation is one of clients' personal versions."""
    return key.endswith(_OWN)


def members(key: str) -> list[str]:
    """Return the keys of the models behind a key of an evaluation: several for an ensemble."""
    return key.removesuffix(_OWN).split("+")


@dataclass(frozen=True)
class Evaluation:
    """Result of one evaluation; arrays are indexed by client - 1.

    ``correct`` and ``loss`` are sums over ``count`` test samples (count 0: client has none and
    takes no part in means); ``named`` maps a title to (accuracy, mean loss) over all samples, ``named_correct``
    to the correct answers on each client's (NaN: not tested). Where models are tested with masked logits (the key
    ``mask_test``), ``unmasked`` has the correct answers of the same models without the mask, else None. ``confusion``
    is there for the last test of a job whose data have classes; with ``mask_test``, it is that of masked logits. So is
    ``auc``, which a job with the key ``auc`` also has.
    """

    round: int
    serve: Sequence[str]
    correct: np.ndarray
    top5: np.ndarray
    loss: np.ndarray
    count: np.ndarray
    named: Mapping[str, tuple[float, float]]
    named_correct: Mapping[str, np.ndarray] = field(default_factory=dict)
    # factories, so that they are no attributes of the class: an evaluation on disk reads them
    unmasked: np.ndarray | None = field(default_factory=lambda: None)
    confusion: Confusion | None = field(default_factory=lambda: None)
    auc: Auc | None = field(default_factory=lambda: None)

    @property
    def client_accuracy(self) -> np.ndarray:
        """Accuracy in [0, 1] of each client that has test samples."""
        tested = self.count > 0
        return self.correct[tested] / self.count[tested]


@dataclass(kw_only=True)
class RoundRecord:
    """All data of a finished round: one line of metrics.jsonl."""

    round: int
    virtual_clock_s: float
    round_duration_s: float
    client_durations_s: list[float]
    wall_s: float = 0.0  # since the record of the round before, whose writing it includes
    selected: int
    participants: list[int]
    assignments: dict[str, int]  # model key -> participants
    offline: int
    stragglers: int
    failed: dict[str, int]  # reason -> clients
    train_loss: float
    learning_rate: float
    models: int = 0  # of the pool, at the round's end
    forward_macs: float  # sums over all clients of this round
    training_macs: float
    download_bytes: int
    upload_bytes: int
    client_download_bytes: list[int]  # these four in the order of ``participants``; a client's items are summed
    client_upload_bytes: list[int]
    client_computation_s: list[float]  # by the virtual clock
    client_communication_s: list[float]
    evaluation: Evaluation | None = None
    cohort_sizes: dict[str, int] = field(default_factory=dict)  # model key -> clients that may train side by side
    seconds: dict[str, float] = field(default_factory=dict)  # the aggregator's wall time by phase
    executor_seconds: dict[str, float] = field(default_factory=dict)  # summed over executors, by kind of work
    privacy: dict[str, float | None] | None = None  # under differential privacy, what it cost and used so far
    personalised: Evaluation | None = None  # after fine-tuning on each client's own data, at the end of a job
    before_training: Evaluation | None = None  # of each client's model around one more round, at the end of a job
    after_training: Evaluation | None = None
    on_all: Evaluation | None = None  # of each client's model on all clients' test samples, at the end of a job
    late_download_bytes: int = 0  # of clients that were too slow to count; no cost above has it
    lost_download_bytes: int = 0  # of clients that went offline before they were done, likewise
    faults: dict[str, int] = field(default_factory=dict)  # what went wrong and was mended; no result depends on it
    digests: dict[str, str] = field(default_factory=dict)  # by name; metrics/job_folder/chain.py says of what
    server_macs: int | None = None  # of the server's own products; None: not counted
    untrained: list[int] = field(default_factory=list)  # participants whose models stayed as they were
