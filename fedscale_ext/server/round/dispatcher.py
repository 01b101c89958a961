"""What a round sends to the executors, and what comes back of it."""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import Evaluation, State, Update, WorkItem, is_personal
from fedscale_ext.server.method_base.hook_checks import check_plan, checked_weight
from fedscale_ext.server.method_base.hooks import MethodHooks
from fedscale_ext.server.privacy import JobPrivacy, check_work
from fedscale_ext.server.round.collect import Collector
from fedscale_ext.server.round.divergence import DivergenceNotices, failure_sentence
from fedscale_ext.tasks import bn_statistics, train
from fedscale_ext.tasks.calibrate import CohortSizes, candidates, measure_sizes
from fedscale_ext.tasks.client_tensors import ClientState, ClientTensors
from fedscale_ext.tasks.evaluate import evaluate
from fedscale_ext.tasks.kind import JobContext
from fedscale_ext.tasks.reduction import ModelMean
from fedscale_ext.tasks.unit_planning import SPREAD, in_parts, plan_units
from fedscale_ext.transport.leases import ExecutorProcess
from fedscale_ext.transport.registration import ExecutorInfo
from fedscale_ext.transport.units import Dropped, Unit
from fedscale_ext.util.stopwatch import Stopwatch
from fedscale_ext.util.torch_devices import device_type

T = TypeVar("T")

_BOUNDS = ("clip_norm", "max_update_norm", "dp_noise_multiplier", "own_classes", "control_variates")
_HEADERS = 4 * 1024 * 1024  # bytes of a message that names and figures need, at most


class Dispatcher:
    """The executors as the aggregator sees them: clients to train, models to test, sizes of cohorts to measure.

    Args:
        job: what is fixed of the job.
        method: is asked only hooks: they weigh and collect updates, and plan evaluations.
        executor: what the executors said of themselves.
        run_units: has them do units (:meth:`fedscale_ext.server.grpc_server.Coordinator.run_units`).
        privacy: of a job with differential privacy.
        watch: counts the seconds of training and of what follows it.
        reports_norms: whether clients report the norm of their change.

    """

    def __init__(
        self,
        job: JobContext,
        method: MethodHooks,
        executor: ExecutorInfo,
        run_units: Callable[..., Iterator[Any]],
        *,
        privacy: JobPrivacy | None,
        watch: Stopwatch,
        reports_norms: bool,
    ) -> None:
        self.job, self._method, self._run_units = job, method, run_units
        self._privacy, self._watch, self.reports_norms = privacy, watch, reports_norms
        self.device = executor.device
        self.sizes: dict[str, int] = {}  # of this round's cohorts, by model key
        self._round = 0
        self._divergence = DivergenceNotices(job.config, job.notice)
        self._seconds: dict[str, float] = {}
        self.cohort_sizes = CohortSizes(
            {
                "device": executor.device_name,
                "torch": executor.versions["torch"],
                "batch": job.config.fedscale.batch_size,
                "precision": job.config.job.precision,
                "participants": job.config.fedscale.num_participants,
                # what decides whether weights are kept as factors, and how many: another size may be the fastest
                "optimizer": job.config.job.client_optimizer,
                "steps": job.config.fedscale.local_steps,
                "bounds": [key for key in _BOUNDS if getattr(job.config.job, key)],
                "norms": self.reports_norms,
                **({"models": "kept by clients"} if job.returns == "nothing" else {}),
            }
        )

    @property
    def clip_norm(self) -> float | None:
        """The norm that clients' changes are clipped to under differential privacy; it can follow a quantile."""
        return None if self._privacy is None else self._privacy.clip_norm

    def train(self, round: int, items: Sequence[WorkItem]) -> tuple[list[Update], dict[str, State], Counter[str]]:
        """Have the items trained.

        Returns:
            The updates sorted by client, each model's mean state by key, and how many clients failed by reason.

        """
        if self._privacy is not None:
            check_work(self.job.config.job.method, items, self.job.pool)
        self._round = round
        self.sizes = self.cohort_sizes_of(items)
        client_tensors = self.tensors_for(items)
        for tensors in client_tensors:
            tensors.begin(items)
        planned = self.plan_training(self.sizes, items, client_tensors, states=self.job.returns == "states")
        units = [
            train.plan(self, round, unit, self.sizes[unit[0].model], list(map(self._weight, unit)), client_tensors)
            for unit in planned
        ]
        collector = self._collector(round, items, client_tensors)
        quorum = self.job.config.job.min_updates
        answers = self.answers(units, lenient=quorum is not None)
        for unit in planned:
            with self._watch("train"):  # the wait for the next unit's answer
                answer = next(answers)
            if isinstance(answer, Dropped):
                answer = {"results": [{"client": item.client, "failed": answer.reason} for item in unit]}, {}
            header, sections = answer
            with self._watch("collect"):
                collector.take(unit, header, sections)
            del sections, answer  # views of a message that may be large
        updates, sums = collector.close()
        for tensors in client_tensors:
            tensors.end_round()
        self._check_quorum(round, items, updates, collector)
        with self._watch("collect"):
            means = self._means(round, items, updates, sums, collector.num_unclipped)
        return updates, means, collector.failed

    def plan_training(
        self,
        sizes: Mapping[str, int],
        items: Sequence[WorkItem],
        client_tensors: Sequence[ClientTensors],
        states: bool = False,
    ) -> list[Sequence[WorkItem]]:
        """Units of clients of one model and objective, cut so that each unit fits into a message, and its answer, which
        has clients' states if ``states``. ``sizes``: clients that train side by side, by model key."""
        spread = SPREAD[device_type(self.device)]
        units = plan_units(items, self.job.pool, self.job.task, sizes.__getitem__, self.job.unit_size, spread)
        return [part for unit in units for part in self.in_messages(unit, unit[0].model, client_tensors, states)]

    def _collector(self, round: int, items: Sequence[WorkItem], client_tensors: Sequence[ClientTensors]) -> Collector:
        return Collector(
            round,
            items,
            self.job,
            self._weight,
            partial(self._method.collect, round) if self.job.returns == "states" else None,
            self.clip_norm,
            client_tensors,
            self.reports_norms,
        )

    def _check_quorum(
        self, round: int, items: Sequence[WorkItem], updates: Sequence[Update], collector: Collector
    ) -> None:
        """UserError where fewer clients gave an update than ``min_updates``; a notice where clients diverged."""
        quorum = self.job.config.job.min_updates
        gave, asked = len({update.client for update in updates}), len({item.client for item in items})
        if gave < min(quorum or 1, asked):
            most = f"{gave} of {asked} clients gave an update and min_updates is {quorum}"
            cause = f"first: {next(iter(collector.failed))}; see the executors' log"
            if collector.diverged:
                cause = failure_sentence(len(collector.diverged), asked, self.job.config)
            raise UserError(f"round {round}: {most if updates else 'every client failed'}, {cause}")
        self._divergence.training(round, len(collector.diverged), asked)

    def _means(
        self,
        round: int,
        items: Sequence[WorkItem],
        updates: Sequence[Update],
        sums: Mapping[str, ModelMean],
        unclipped: int,
    ) -> dict[str, State]:
        """Each model's mean state by key; with noise under differential privacy."""
        if self._privacy is None:
            return {model: mean.state() for model, mean in sums.items()}
        shares = self._method.expected_shares()
        clients = [item.client for item in items]
        return self._privacy.release(round, clients, self.job.pool, sums, shares, unclipped, len(updates))

    def _weight(self, item: WorkItem) -> float:
        """All alike under differential privacy: a weight would tell of the data and change what noise must cover."""
        if self._privacy is not None:
            return 1.0
        return checked_weight(self._method.weight(item), self.job.config.job.method)

    def in_messages(
        self, unit: Sequence[T], key: str, client_tensors: Sequence[ClientTensors], states: bool = False
    ) -> list[Sequence[T]]:
        """A unit cut so that messages have room: for a model's state and further tensors of clients, and in the answer,
        with ``states``, for each client's state and tensors."""
        state, most_mb = self.job.pool[key].cost.bytes, self.job.config.job.max_message_mb
        per_client, room = sum(tensors.most(key) for tensors in client_tensors), most_mb * 1024 * 1024 - _HEADERS
        fitting = [room // (state + per_client)] if states else []
        if per_client:
            fitting.append((room - state - sum(tensors.in_each_message for tensors in client_tensors)) // per_client)
        if not fitting:
            return [unit]
        if min(fitting) < 1:
            what = f"model {key} and the further tensors of one client do" if per_client else f"model {key} does"
            raise UserError(f"{what} not fit into a message of max_message_mb={most_mb}: raise max_message_mb")
        return in_parts(unit, math.ceil(len(unit) / min(fitting)))

    def tensors_to_test(self, key: str) -> list[ClientTensors]:
        """The tensors that clients get in addition to the model of a key of an evaluation."""
        return [each for each in self.job.client_tensors_by_kind.values() if each.tested] if is_personal(key) else []

    def tensors_for(self, items: Sequence[WorkItem]) -> list[ClientTensors]:
        """The tensors that the clients of these items get in addition to models."""
        return [tensors for tensors in self.job.client_tensors_by_kind.values() if tensors.concerns(items)]

    def tensor_arguments(self, client_tensors: Sequence[ClientTensors], items: Sequence[WorkItem]) -> dict[str, Any]:
        """Arguments of ``make_unit`` that make a unit of these clients carry these tensors."""

        def sections(without: Container[str]) -> dict[str, bytes]:
            return {name: part for each in client_tensors for name, part in each.sections(items, without).items()}

        def cached(process: ExecutorProcess) -> dict[str, str]:
            return {name: label for each in client_tensors for name, label in each.cached(items, process).items()}

        functions = {"sections": sections, "cached": cached} if client_tensors else {}
        return {**functions, "tensors": [tensors.kind for tensors in client_tensors]}

    def test_tensor_arguments(
        self, client_tensors: Sequence[ClientTensors], items: Sequence[WorkItem]
    ) -> dict[str, Any]:
        """The same for a test: whether BatchNorm statistics of clients' personal versions are re-estimated, too."""
        measured = bool(client_tensors) and self.job.reestimates_statistics
        return {
            **self.tensor_arguments(client_tensors, items),
            **self.test_objective(client_tensors),
            **({bn_statistics.EVENT: True} if measured else {}),
        }

    def test_objective(self, client_tensors: Sequence[ClientTensors]) -> dict[str, Any]:
        """The method's objective in a test with these tensors, as an argument of ``make_unit``; empty without one."""
        objective = dict(self._method.test_objective()) if client_tensors else {}
        return {"objective": objective} if objective else {}

    def cohort_sizes_of(self, items: Sequence[WorkItem]) -> dict[str, int]:
        """How many clients train side by side, by model key; measured for a model that is new here. On parts of a
        supernet, which choose a path each, one after another."""
        pool, keys = self.job.pool, sorted({item.model for item in items})
        fixed = self.job.config.job.cohort_size
        if isinstance(fixed, int):
            return dict.fromkeys(keys, fixed)
        possible = candidates(self.device, self.job.config.fedscale.num_participants)
        new = {
            key: possible
            for key in keys
            if pool.host(key) is pool[key].spec and len(possible) > 1 and self.cohort_sizes.size(pool[key].spec) is None
        }
        measure_sizes(self, self._round, self.cohort_sizes, new)
        return {key: self.cohort_sizes.size(pool[key].spec) or 1 for key in keys}

    def answers(self, units: Sequence[Unit], lenient: bool = False) -> Iterator[Any]:
        """The answers to units in their order: (header, sections), or Dropped for a unit that was given up."""
        for answer in self._run_units(units, lenient=lenient):
            if not isinstance(answer, Dropped):
                for kind, seconds in answer[0].get("seconds", {}).items():
                    self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
            yield answer

    def evaluate(self, round: int, by_class: bool = False) -> Evaluation:
        """Have the method's models tested on the clients that they serve; ``by_class``: with confusion matrices."""
        plan, job = self._method.evaluation_plan(), self.job
        personal_models = ClientState.kind in job.client_tensors_by_kind
        check_plan(plan, job.config.job.method, job.pool, job.task.num_clients, personal_models)
        if job.reestimates_statistics:
            bn_statistics.reestimate(self, round, plan)
        evaluation = evaluate(self, round, plan, by_class)
        self._divergence.test(evaluation)
        return evaluation

    def seconds(self) -> dict[str, float]:
        """Where the executors' time went since this was last asked, summed over them, by kind of work."""
        seconds, self._seconds = self._seconds, {}
        return seconds
