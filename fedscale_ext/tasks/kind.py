"""A kind of work: what the aggregator asks executors for, how an executor does it, how the answer is checked.

The kinds are the files that ``kinds.py`` lists, each with both halves; the other files of this folder are parts that
kinds share. The server's half plans units and gathers their answers; it gets a :class:`Dispatcher`. The executor's half
does one unit; it gets a :class:`Worker`. Training is the exception: ``server/round/dispatcher.py`` and
``server/round/collect.py`` gather its answers, since these need the method's hooks. A method adds a kind by a class
attribute ``kinds`` of its executor (``methods/fedoras/judge_task.py``); nothing else changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol, TypeVar

import numpy as np
from torch import nn

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.types import Task, WorkItem
from fedscale_ext.data.store import DataSet
from fedscale_ext.population.population import Population
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.client_tensors import ClientTensors
from fedscale_ext.tasks.evaluation_figures import MASK
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import CohortState
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport.units import Dropped, MakeUnit, Unit, UnitHeader
from fedscale_ext.transport.wire import Section
from fedscale_ext.util.stopwatch import Stopwatch

T = TypeVar("T")

TENSORS: Final = "tensors"  # in a unit's header: the kinds of tensors that come for its clients
CACHED: Final = "cached"  # in a unit's header: sections that the executor has, by name, and their labels there
NOT_CACHED = "not_cached"  # in an answer's header: True if one of these is missing; the whole unit is sent again
SENDER = "sender"  # in an answer's header as the server has it: the process that sent it

Answer = tuple[dict[str, Any], dict[str, bytes]]
"""What an executor answers to a unit: JSON, and sections of bytes by name."""

Returns = Literal["sum", "states", "nothing"]
"""What executors return of the models that clients train: each unit's sum, each client's state, or nothing."""

Trained = tuple[Sequence[dict[str, Any] | Exception], CohortState]
"""FedScale's results of some clients, or why there is none, and their states [clients, *shape]."""


class Kind:
    """Base of each kind of work."""

    event: ClassVar[str]  #: names the kind in messages
    answer: ClassVar[str] = ""  #: names its answers, where FedScale has another name for them

    def run(self, worker: "Worker", header: UnitHeader) -> Answer:
        """Do one unit on an executor.

        Args:
            worker: the executor's data, models and clients.
            header: what the unit asks for, as its planner wrote it.

        """
        raise NotImplementedError

    def check(
        self, unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section], test_sizes: np.ndarray
    ) -> None:
        """Raise WireError, which says what is wrong, unless this can be the answer to ``unit``; whoever sent it.

        Args:
            unit: what was asked.
            header: the answer's JSON.
            sections: the answer's bytes by name.
            test_sizes: int64 [clients], test samples of each client.

        """
        raise NotImplementedError


class Worker(Protocol):
    """An executor, as the kinds of work use it."""

    data: DataSet
    bench: Workbench  #: the models that came with units
    watch: Stopwatch
    test_batch: int  #: samples that a test passes through a model at once
    seed: int  #: of the job

    def client_of(self, conf: ClientConfig) -> MultiModelClient:
        """Return the object that runs the steps of a client."""

    def client_config(self, header: UnitHeader, item: Mapping[str, Any]) -> ClientConfig:
        """Return a client's configuration, from a unit's header and one of its items."""

    def client_configs(self, header: UnitHeader, items: Sequence[Mapping[str, Any]]) -> list[ClientConfig]:
        """Return the configurations of a unit's clients, with the tensors that came for each."""

    def trained(
        self, model: str, confs: Sequence[ClientConfig], cohort_size: int, factored: bool = False
    ) -> Iterator[Trained]:
        """Train clients, some at a time; the next states overwrite these.

        Args:
            model: pool key of the model that all of them train.
            confs: of these clients.
            cohort_size: how many train side by side, at most.
            factored: whether large linear layers may keep the factors of their steps (``training/factored.py``).

        """

    def batch_sizes(self, conf: ClientConfig) -> np.ndarray:
        """Return the number of samples that each step of a client sees, int64 [steps]."""

    def samples(self, conf: ClientConfig) -> ClientSamples:
        """Return a client's training samples, on the training device."""

    def device_inputs(self, rows: np.ndarray) -> Any:
        """Return the inputs of rows of the data set, on the training device."""

    def personal_models(self, header: UnitHeader) -> Iterator[tuple[int, nn.Module]]:
        """Yield each client of a unit with its personal version of the unit's model."""


class Dispatcher(Protocol):
    """The aggregator's link to its executors, as the kinds of work use it."""

    job: "JobContext"
    device: str  #: where executors train: "cpu", "cuda" or "cuda:1"
    reports_norms: bool  #: whether clients report the norm of their change

    @property
    def clip_norm(self) -> float | None:
        """The norm that clients' changes are clipped to under differential privacy."""

    def cohort_sizes_of(self, items: Sequence[WorkItem]) -> dict[str, int]:
        """Return the number of clients that train side by side, by key of their model."""

    def in_messages(
        self, unit: Sequence[T], key: str, client_tensors: Sequence[ClientTensors], states: bool = False
    ) -> list[Sequence[T]]:
        """Cut a unit so that each part fits into a message, and its answer, which has clients' states if ``states``."""

    def plan_training(
        self,
        sizes: Mapping[str, int],
        items: Sequence[WorkItem],
        client_tensors: Sequence[ClientTensors],
        states: bool = False,
    ) -> list[Sequence[WorkItem]]:
        """Plan units of clients of one model and objective that fit into messages.

        ``sizes``: how many clients train side by side, by model key.
        """

    def tensors_to_test(self, key: str) -> list[ClientTensors]:
        """Return the tensors that clients get in addition to the model of a key of an evaluation."""

    def tensors_for(self, items: Sequence[WorkItem]) -> list[ClientTensors]:
        """Return the tensors that the clients of these items get in addition to models."""

    def tensor_arguments(self, client_tensors: Sequence[ClientTensors], items: Sequence[WorkItem]) -> dict[str, Any]:
        """Return arguments of ``make_unit`` that make a unit carry these tensors."""

    def test_tensor_arguments(
        self, client_tensors: Sequence[ClientTensors], items: Sequence[WorkItem]
    ) -> dict[str, Any]:
        """Return arguments of ``make_unit`` that make a test of personal versions carry these tensors."""

    def test_objective(self, client_tensors: Sequence[ClientTensors]) -> dict[str, Any]:
        """Return the argument of ``make_unit`` that is the method's objective in a test with these tensors."""

    def answers(self, units: Sequence[Unit], lenient: bool = False) -> Iterator[tuple[Any, Any] | Dropped]:
        """Yield the answers to units, in their order: (header, sections), or Dropped for an abandoned unit."""


@dataclass(frozen=True)
class JobContext:
    """What the aggregator's components use of the job.

    Made once, before round 1. The pool's models change from round to round.
    """

    config: JobConfig
    task: Task
    pool: ModelPool
    population: Population
    capacity: np.ndarray  #: float64 [clients], MACs per sample that each client's device affords
    eligible: np.ndarray  #: bool [clients], who may train
    client_tensors_by_kind: Mapping[str, ClientTensors]  #: tensors that clients get in addition to models, by kind
    returns: Returns  #: what executors return of the models that clients train
    reestimates_statistics: bool  #: whether BatchNorm statistics are re-estimated before tests
    masks_tests: bool  #: whether clients are tested with masked logits, too
    learning_rate: Callable[[int], float]  #: of the clients, by round
    download_bytes: Callable[[WorkItem], int]  #: bytes that a client downloads for an item
    upload_bytes: Callable[[WorkItem], int]  #: bytes that a client uploads for an item
    make_unit: MakeUnit
    notice: Callable[[str], None]  #: tells whoever watches the job
    record: Callable[[str, Any], None]  #: keeps a figure of the round for internals.jsonl

    @property
    def unit_size(self) -> int | None:
        """Approximate number of clients of a unit; None where the round decides."""
        size = self.config.job.unit_size
        return size if isinstance(size, int) else None

    @property
    def mask_arguments(self) -> dict[str, Any]:
        """Arguments of ``make_unit`` for tests with masked logits, too, where the job is configured so."""
        return {MASK: True} if self.masks_tests else {}
