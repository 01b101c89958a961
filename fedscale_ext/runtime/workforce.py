"""What a round hands to the executors, and what comes back of it."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from fedscale.cloud import commons

from fedscale_ext.errors import UserError
from fedscale_ext.runtime import calibration, wire
from fedscale_ext.runtime.calibration import CohortSizes, candidates
from fedscale_ext.runtime.collect import Collector
from fedscale_ext.runtime.evaluation import COLUMNS, Gathered, pairs_to_test
from fedscale_ext.runtime.ledger import Dropped, Unit
from fedscale_ext.runtime.registration import ExecutorInfo
from fedscale_ext.runtime.units import SPREAD, plan_units
from fedscale_ext.runtime.work import Evaluation, State, Update, WorkItem

if TYPE_CHECKING:
    from fedscale_ext.runtime.aggregator import MultiModelAggregator


class Workforce:
    """The executors as the aggregator sees them: clients to train, models to test, sizes of cohorts to measure."""

    def __init__(self, job: "MultiModelAggregator", executor: ExecutorInfo) -> None:
        self._job = job
        self._device = executor.device
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
        sizes = self.sizes = self._cohort_sizes(items)
        unit_size, spread = self._job.config.job.unit_size, SPREAD[self._device.partition(":")[0]]
        planned = plan_units(items, self._job.pool, self._job.task, sizes.__getitem__, unit_size, spread)
        units = [self._train_unit(unit, sizes[unit[0].model]) for unit in planned]
        keep = None if self._job.reduces else partial(self._job.collect, number)
        max_norm = self._job.config.job.max_update_norm
        task, longest = self._job.task, self._longest
        collector = Collector(number, items, self._job.pool, task, self._weight, keep, max_norm, longest)
        quorum = self._job.config.job.min_updates
        results = self._job.run_units(units, lenient=quorum is not None)
        for unit in planned:
            with self._job.watch("train"):  # the wait for the next unit's result
                result = next(results)
            if isinstance(result, Dropped):
                result = {"results": [{"client": item.client, "failed": result.reason} for item in unit]}, {}
            header, sections = result
            with self._job.watch("collect"):
                self._note_seconds(header)
                collector.take(unit, header, sections)
            del sections, result  # views of a message that may be large
        updates, sums = collector.close()
        if len(updates) < min(quorum or 1, len(items)):
            first = next(iter(collector.failed))
            most = f"{len(updates)} of {len(items)} clients gave an update and min_updates is {quorum}"
            raise UserError(
                f"round {number}: {most if updates else 'every client failed'}, first: {first}; see the executors' log"
            )
        with self._job.watch("collect"):
            privacy = self._job.privacy
            if privacy is None:
                means = {model: mean.state() for model, mean in sums.items()}
            else:
                shares = self._job.expected_shares()
                clients = [item.client for item in items]
                means = privacy.release(number, clients, self._job.pool, sums, shares, collector.within, len(updates))
        return updates, means, collector.failed

    @property
    def _longest(self) -> float | None:
        """The norm that clients' changes are clipped to."""
        return None if self._job.privacy is None else self._job.privacy.clip_norm

    def _weight(self, item: WorkItem) -> float:
        """All alike under differential privacy: a weight would tell of the data and change what noise must cover."""
        return self._job.weight(item) if self._job.privacy is None else 1.0

    def _train_unit(self, items: Sequence[WorkItem], cohort: int) -> Unit:
        return self._job.make_unit(
            commons.CLIENT_TRAIN,
            [items[0].model],
            learning_rate=self._job.learning_rate(self._job.round),
            cohort=cohort,
            sum=self._job.reduces,
            longest=self._longest,
            items=[
                {
                    "client": item.client,
                    "model": item.model,
                    "objective": dict(item.objective),
                    "weight": self._weight(item),
                }
                for item in items
            ],
        )

    def _cohort_sizes(self, items: Sequence[WorkItem]) -> dict[str, int]:
        """How many clients train side by side, by model key; measured for a model that is new here."""
        keys = sorted({item.model for item in items})
        fixed = self._job.config.job.cohort_size
        if isinstance(fixed, int):
            return dict.fromkeys(keys, fixed)
        new = {}
        for key in keys:
            possible = candidates(self._device, self._job.args.num_participants)
            if len(possible) > 1 and self.cohort_sizes.size(self._job.pool[key].spec) is None:
                new[key] = possible
        units = [
            self._job.make_unit(
                calibration.EVENT,
                [key],
                model=key,
                sizes=sizes,
                sum=self._job.reduces,
                longest=self._longest,
                learning_rate=self._job.learning_rate(self._job.round),
            )
            for key, sizes in new.items()
        ]
        for key, result in zip(new, self._job.run_units(units), strict=True):
            if isinstance(result, Dropped):
                raise UserError(f"cohort_size auto: {result.reason}; set cohort_size to a number")
            header, _ = result
            size = self.cohort_sizes.choose(self._job.pool[key].spec, dict(header["seconds_by_size"]))
            logging.info(f"model {key} trains {size} clients side by side; measured {header['seconds_by_size']}")
        return {key: self.cohort_sizes.size(self._job.pool[key].spec) or 1 for key in keys}

    def _note_seconds(self, header: Mapping[str, Any]) -> None:
        """Where an executor's time went, as it says itself: for the profile, nothing depends on it."""
        for kind, spent in header.get("seconds", {}).items():
            self._seconds[kind] = self._seconds.get(kind, 0.0) + spent

    def evaluate(self, number: int) -> Evaluation:
        """Have the method's models tested on the clients that they serve."""
        plan = self._job.evaluation_plan()
        pieces = pairs_to_test(plan, self._job.task)
        units = [self._job.make_unit(commons.MODEL_TEST, [key], model=key, clients=clients) for key, clients in pieces]
        gathered = Gathered(plan, self._job.task)
        for (key, clients), result in zip(pieces, self._job.run_units(units), strict=True):
            if isinstance(result, Dropped):
                self._job.notice(f"round {number}: {len(clients)} clients are not tested on {key}: {result.reason}")
                gathered.miss(key, clients)
                continue
            header, sections = result
            self._note_seconds(header)
            columns = wire.columns(sections["figures"], COLUMNS, torch.float64)
            gathered.add(key, clients, np.stack(columns, axis=1))
        return gathered.evaluation(number)

    def seconds(self) -> dict[str, float]:
        """Where the executors' time went since this was last asked, summed over them, by kind of work."""
        seconds, self._seconds = self._seconds, {}
        return seconds
