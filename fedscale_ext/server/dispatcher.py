"""What a round hands to the executors, and what comes back of it."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from fedscale.cloud import commons

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import Evaluation, EvaluationPlan, State, Update, WorkItem, is_own, members
from fedscale_ext.server.collect import Collector
from fedscale_ext.server.divergence import DivergenceNotices, failure_sentence
from fedscale_ext.server.hook_checks import check_plan
from fedscale_ext.tasks import bn_statistics as static_statistics
from fedscale_ext.tasks import calibration
from fedscale_ext.tasks.calibration import CohortSizes, candidates
from fedscale_ext.tasks.client_tensors import ClientTensors, OwnTensors
from fedscale_ext.tasks.evaluation import MASK, Gathered, pairs_to_test, pieces, read_figures, served
from fedscale_ext.tasks.units import SPREAD, in_parts, plan_units
from fedscale_ext.tasks.update_checks import Rejected, checked_tensors
from fedscale_ext.transport.registration import ExecutorInfo
from fedscale_ext.transport.unit_ledger import Dropped, Unit

if TYPE_CHECKING:
    from fedscale_ext.server.aggregator import MultiModelAggregator

T = TypeVar("T")

_HEADERS = 4 * 1024 * 1024  # bytes of a message that names and figures need, at most


class Workforce:
    """The executors as the aggregator sees them: clients to train, models to test, sizes of cohorts to measure."""

    def __init__(self, job: "MultiModelAggregator", executor: ExecutorInfo) -> None:
        self.job = job
        self.device = executor.device
        self._divergence = DivergenceNotices(job.config, job.notice)
        self._seconds: dict[str, float] = {}
        self.sizes: dict[str, int] = {}  # of this round's cohorts, by model key
        self.cohort_sizes = CohortSizes(
            {
                "device": executor.device_name,
                "torch": executor.versions["torch"],
                "batch": job.args.batch_size,
                "precision": job.config.job.precision,
                "participants": job.args.num_participants,
            }
        )

    def train(self, number: int, items: Sequence[WorkItem]) -> tuple[list[Update], dict[str, State], Counter[str]]:
        """Have the items trained: the updates sorted by client, each model's mean state, and failures by reason."""
        if self.job.privacy is not None:
            self._check_shieldable(items)
        sizes = self.sizes = self.cohort_sizes_of(items)
        unit_size, spread = self.job.config.job.unit_size, SPREAD[self.device.partition(":")[0]]
        planned = plan_units(items, self.job.pool, self.job.task, sizes.__getitem__, unit_size, spread)
        handed = self.handed_with(items)
        for kept in handed:
            kept.begin(items)
        planned = [part for unit in planned for part in self.in_messages(unit, unit[0].model, handed)]
        units = [self._train_unit(unit, sizes[unit[0].model]) for unit in planned]
        keep = None if self.job.reduces else partial(self.job.collect, number)
        max_norm = self.job.config.job.max_update_norm
        collector = Collector(
            number,
            items,
            self.job.pool,
            self.job.task,
            self._weight,
            keep,
            max_norm,
            self._longest,
            handed,
            self._norms,
        )
        quorum = self.job.config.job.min_updates
        results = self.job.run_units(units, lenient=quorum is not None)
        for unit in planned:
            with self.job.watch("train"):  # the wait for the next unit's result
                result = next(results)
            if isinstance(result, Dropped):
                result = {"results": [{"client": item.client, "failed": result.reason} for item in unit]}, {}
            header, sections = result
            with self.job.watch("collect"):
                self.note_seconds(header)
                collector.take(unit, header, sections)
            del sections, result  # views of a message that may be large
        updates, sums = collector.close()
        for kept in handed:
            kept.settle()
        gave, asked = len({update.client for update in updates}), len({item.client for item in items})
        if gave < min(quorum or 1, asked):
            most = f"{gave} of {asked} clients gave an update and min_updates is {quorum}"
            cause = f"first: {next(iter(collector.failed))}; see the executors' log"
            if collector.diverged:
                cause = failure_sentence(len(collector.diverged), asked, self.job.config)
            raise UserError(f"round {number}: {most if updates else 'every client failed'}, {cause}")
        self._divergence.training(number, len(collector.diverged), asked)
        with self.job.watch("collect"):
            privacy = self.job.privacy
            if privacy is None:
                means = {model: mean.state() for model, mean in sums.items()}
            else:
                shares = self.job.expected_shares()
                clients = [item.client for item in items]
                means = privacy.release(number, clients, self.job.pool, sums, shares, collector.within, len(updates))
        return updates, means, collector.failed

    def _check_shieldable(self, items: Sequence[WorkItem]) -> None:
        """Noise is made for one change of one whole model per client."""
        if any(item.objective.get("own_classes") for item in items):
            raise UserError(
                f"clients of method {self.job.config.job.method} count for their own classes only, which tells of "
                "their data what dp_noise_multiplier does not shield; turn one of them off"
            )
        once = len({item.client for item in items}) == len(items)
        if not once or any(self.job.pool[item.model].part for item in items):
            raise UserError(
                f"method {self.job.config.job.method} trains parts of models or several models per client, for which "
                "dp_noise_multiplier is not made; remove it, or choose a method with one model per client"
            )

    @property
    def _longest(self) -> float | None:
        """The norm that clients' changes are clipped to."""
        return None if self.job.privacy is None else self.job.privacy.clip_norm

    @property
    def _norms(self) -> bool:
        """Whether clients tell the norm of their change."""
        return self.job.selection is not None and self.job.selection.norms

    def _weight(self, item: WorkItem) -> float:
        """All alike under differential privacy: a weight would tell of the data and change what noise must cover."""
        return self.job.weight(item) if self.job.privacy is None else 1.0

    def in_messages(self, unit: Sequence[T], key: str, handed: Sequence[ClientTensors]) -> list[Sequence[T]]:
        """A unit cut so that what its clients are handed beside a model's state fits into a message with it."""
        own, most_mb = sum(kept.most(key) for kept in handed), self.job.config.job.max_message_mb
        if not own:
            return [unit]
        fixed = self.job.pool[key].cost.bytes + sum(kept.in_each_message for kept in handed)
        room = most_mb * 1024 * 1024 - fixed - _HEADERS
        if room < own:
            raise UserError(
                f"model {key} and what one client is handed beside it do not fit into a message of "
                f"max_message_mb={most_mb}: raise max_message_mb"
            )
        return in_parts(unit, math.ceil(len(unit) / (room // own)))

    def own_of(self, key: str) -> list[ClientTensors]:
        """What clients are handed beside the model of a key of an evaluation."""
        return [self.job.handed[OwnTensors.kind]] if is_own(key) else []

    def handed_with(self, items: Sequence[WorkItem]) -> list[ClientTensors]:
        """What the clients of these items are handed beside models."""
        return [kept for kept in self.job.handed.values() if kept.concerns(items)]

    def brings(self, handed: Sequence[ClientTensors], items: Sequence[WorkItem]) -> dict[str, Any]:
        """What makes a unit of these clients bring what they are handed: arguments of ``make_unit``."""

        def more() -> dict[str, bytes]:
            return {name: section for kept in handed for name, section in kept.sections(items).items()}

        return {"more": more if handed else None, "handed": [kept.kind for kept in handed]}

    def brings_to_test(self, own: Sequence[ClientTensors], items: Sequence[WorkItem]) -> dict[str, Any]:
        """The same for a test: whether clients measure the statistics of their own versions, too."""
        measured = bool(own) and self.job.static_statistics
        return {**self.brings(own, items), **({static_statistics.EVENT: True} if measured else {})}

    def masks(self) -> dict[str, Any]:
        """What makes a unit test each client with masked logits, too: arguments of ``make_unit``."""
        return {MASK: True} if self.job.masks_tests else {}

    def _train_unit(self, items: Sequence[WorkItem], cohort: int) -> Unit:
        return self.job.make_unit(
            commons.CLIENT_TRAIN,
            [items[0].model],
            **self.brings(self.handed_with(items), items),
            learning_rate=self.job.learning_rate(self.job.round),
            cohort=cohort,
            sum=self.job.reduces,
            longest=self._longest,
            norms=self._norms,
            items=[
                {
                    "client": item.client,
                    "model": item.model,
                    "objective": dict(item.objective),
                    "weight": self._weight(item),
                    "dropped": list(item.dropped),
                }
                for item in items
            ],
        )

    def cohort_sizes_of(self, items: Sequence[WorkItem]) -> dict[str, int]:
        """How many clients train side by side, by model key; measured for a model that is new here. On parts of a
        supernet, which choose a path each, one after another."""
        keys = sorted({item.model for item in items})
        fixed = self.job.config.job.cohort_size
        if isinstance(fixed, int):
            return dict.fromkeys(keys, fixed)
        new = {}
        for key in keys:
            if self.job.pool.host(key) is not self.job.pool[key].spec:
                continue
            possible = candidates(self.device, self.job.args.num_participants)
            if len(possible) > 1 and self.cohort_sizes.size(self.job.pool[key].spec) is None:
                new[key] = possible
        units = [
            self.job.make_unit(
                calibration.EVENT,
                [key],
                model=key,
                sizes=sizes,
                sum=self.job.reduces,
                longest=self._longest,
                norms=self._norms,
                learning_rate=self.job.learning_rate(self.job.round),
            )
            for key, sizes in new.items()
        ]
        for key, result in zip(new, self.job.run_units(units), strict=True):
            if isinstance(result, Dropped):
                raise UserError(f"cohort_size auto: {result.reason}; set cohort_size to a number")
            header, _ = result
            size = self.cohort_sizes.choose(self.job.pool[key].spec, dict(header["seconds_by_size"]))
            logging.info(f"model {key} trains {size} clients side by side; measured {header['seconds_by_size']}")
        return {key: self.cohort_sizes.size(self.job.pool[key].spec) or 1 for key in keys}

    def note_seconds(self, header: Mapping[str, Any]) -> None:
        """Where an executor's time went, as it says itself: for the profile, nothing depends on it."""
        for kind, spent in header.get("seconds", {}).items():
            self._seconds[kind] = self._seconds.get(kind, 0.0) + spent

    def evaluate(self, number: int) -> Evaluation:
        """Have the method's models tested on the clients that they serve."""
        plan, task = self.job.evaluation_plan(), self.job.task
        own_versions = OwnTensors.kind in self.job.handed
        check_plan(plan, self.job.config.job.method, self.job.pool, task.num_clients, own_versions)
        if self.job.static_statistics:
            self._measure_statistics(number, plan)
        wanted = pairs_to_test(plan, task)
        wanted = [
            (key, list(part))
            for key, clients in wanted
            for part in self.in_messages(clients, members(key)[0], self.own_of(key))
        ]
        units = [
            self.job.make_unit(
                commons.MODEL_TEST,
                members(key),
                **self.brings_to_test(self.own_of(key), [WorkItem(client, members(key)[0]) for client in clients]),
                learning_rate=self.job.learning_rate(number),
                model=key,
                members=members(key),
                clients=clients,
                **self.masks(),
            )
            for key, clients in wanted
        ]
        gathered = Gathered(plan, task, self.job.masks_tests)
        for (key, clients), unit, result in zip(wanted, units, self.job.run_units(units), strict=True):
            if isinstance(result, Dropped):
                self.job.notice(f"round {number}: {len(clients)} clients are not tested on {key}: {result.reason}")
                gathered.miss(key, clients)
                continue
            header, sections = result
            self.note_seconds(header)
            gathered.add(key, clients, read_figures(unit.header, sections["figures"]))
        evaluation = gathered.evaluation(number)
        self._divergence.test(evaluation)
        return evaluation

    def _measure_statistics(self, number: int, plan: EvaluationPlan) -> None:
        """Give every model that is about to be tested the BatchNorm statistics of clients that can compute it, or are
        served it all the same (methods have a smallest model for everybody, or look at no capacity)."""
        pool, task = self.job.pool, self.job.task
        served_to: dict[str, np.ndarray] = {}  # bool [clients]
        keys, places = served(plan)
        for key in [*keys, *plan.named.values()]:
            own = places == keys.index(key) if key in keys else np.zeros(task.num_clients, dtype=bool)
            for member in members(key):
                served_to[member] = served_to.get(member, False) | own
        wanted = []
        for key, own in served_to.items():
            if static_statistics.layers(pool[key].state):
                clients = self._measured_clients(number, key, own)
                wanted += [(key, part.tolist()) for part in pieces(clients, task.train_sizes[clients - 1])]
        units = [
            self.job.make_unit(static_statistics.EVENT, [key], model=key, clients=clients) for key, clients in wanted
        ]
        totals: dict[str, State] = {}
        for (key, clients), result in zip(wanted, self.job.run_units(units), strict=True):
            template = static_statistics.template(pool[key].state)
            fault = result.reason if isinstance(result, Dropped) else None
            if not isinstance(result, Dropped):
                header, sections = result
                self.note_seconds(header)
                try:
                    total = totals.setdefault(key, template)
                    for name, value in checked_tensors(sections[static_statistics.SUMS], template).items():
                        total[name] = total[name] + value
                except Rejected as reason:
                    fault = str(reason)
            if fault is not None:
                self.job.notice(f"round {number}: statistics of {len(clients)} clients are left out: {fault}")
        for key, total in totals.items():
            pool.amend(key, static_statistics.with_statistics(pool[key].state, total))

    def _measured_clients(self, number: int, key: str, served_to: np.ndarray) -> np.ndarray:
        """Numbers of the clients whose data pass through a model, ascending: such as can compute it or are served
        it (bool [clients]), if there are any."""
        job = self.job
        able = job.eligible & (served_to | (job.capacity >= job.pool[key].cost.forward_macs))
        places = np.flatnonzero(able if able.any() else job.eligible)
        most = job.config.job.bn_statistics_clients
        if len(places) > most:
            places = stream(job.seed, number, key, "statistics").choice(places, most, replace=False)
        return np.sort(places) + 1

    def seconds(self) -> dict[str, float]:
        """Where the executors' time went since this was last asked, summed over them, by kind of work."""
        seconds, self._seconds = self._seconds, {}
        return seconds
