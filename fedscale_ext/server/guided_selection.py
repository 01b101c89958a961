"""Participants by what they brought before (``sample_mode``): Oort and PyramidFL between the steps of a round.

They know no method. What a client's data is worth comes with every update; how long it takes, from the schedule.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import State, Update, WorkItem
from fedscale_ext.models import parameter_names
from fedscale_ext.population.clock import whole_model_seconds
from fedscale_ext.population.selection.oort import Oort, OortKeys
from fedscale_ext.population.selection.pyramidfl import dropout_ratios, lengthened
from fedscale_ext.server.round.stragglers import Schedule, client_times
from fedscale_ext.tasks.kind import JobContext


def guided(job: JobContext) -> "Guided | None":
    """The job's selector, once its clients and first models are known; None: participants are drawn alike."""
    kinds: dict[str, type[Guided]] = {"oort": Guided, "pyramidfl": Pyramid}
    kind = kinds.get(job.config.fedscale.sample_mode)
    return None if kind is None else kind(job)


class Guided:
    """Oort (:mod:`fedscale_ext.population.selection.oort`): a client's utility comes with each update.

    Of a client with several models it is their mean. Until a client has trained, its round is taken to last as long as
    with the largest model of the first pool that its device affords.
    """

    norms: ClassVar[bool] = False  # whether clients tell the norm of their change

    def __init__(self, job: JobContext) -> None:
        self._job = job
        keys = OortKeys.of(job.config.fedscale, job.config.job.pacer_rule)
        seen = job.task.samples_seen(np.arange(job.task.num_clients))
        self.oort = Oort(keys, job.eligible, np.minimum(seen, job.task.train_sizes), self._expected_s(seen))

    def _expected_s(self, seen: np.ndarray) -> np.ndarray:
        job = self._job
        costs = sorted((model.cost for model in job.pool), key=lambda cost: cost.forward_macs)
        macs = np.array([cost.forward_macs for cost in costs], dtype=np.float64)
        largest = np.maximum(np.searchsorted(macs, job.capacity, side="right") - 1, 0)
        return whole_model_seconds(
            job.population.computation_ms,
            job.population.communication_kbps,
            [costs[index] for index in largest],
            seen,
            job.config.job.reference_macs,
        )

    def select(
        self, round: int, online: np.ndarray, count: int, rng: np.random.Generator, groups: np.ndarray | None
    ) -> np.ndarray:
        """Sorted ids of a round's participants among ``online`` bool [clients]."""
        chosen = self.oort.select(round, online, count, rng, groups)
        self._job.record(
            "selection",
            {
                "exploration": self.oort.exploration,
                "round_threshold": self.oort.round_threshold,
                "new": int((self.oort.taken[chosen - 1] == 0).sum()),
            },
        )
        return chosen

    def refined(self, round: int, schedule: Schedule, clock_s: float) -> Schedule:
        """The schedule with what those who count do otherwise; they do as the method says."""
        return schedule

    def learn(self, round: int, schedule: Schedule, updates: Sequence[Update]) -> None:
        """Take in a round: what each client's update was worth, how long everybody took who was asked and stayed."""
        worth_by_client: dict[int, list[float]] = {}
        for update in updates:
            worth_by_client.setdefault(update.client, []).append(self.worth(update))
        clients = np.array([*schedule.clients, *schedule.late.tolist()], dtype=np.int64)
        utility = np.array([np.mean(worth_by_client.get(client, [np.nan])) for client in clients.tolist()])
        self.oort.learn(round, clients, utility, np.concatenate([schedule.durations_s, schedule.late_s]))

    def worth(self, update: Update) -> float:
        """Utility of an update: samples times the root of their mean squared loss."""
        return update.utility

    def state(self) -> tuple[State, dict[str, Any]]:
        """What a checkpoint holds: tensors and JSON."""
        columns, data = self.oort.state()
        return {name: torch.from_numpy(column.copy()) for name, column in columns.items()}, data

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        self.oort.load_state({name: tensor.numpy() for name, tensor in tensors.items()}, data)


class Pyramid(Guided):
    """PyramidFL (Li et al., MobiCom 2022): Oort by the norm of updates; and of those who count, the ones of less
    utility leave out more of their updates' tensors, and all train until the slowest is done.

    ``gradient`` float64 [clients]: norm of a client's last change times the samples behind it (NaN: none yet). Its
    public code takes the norm of the change less the model's weights, chooses by Oort's utility all the same, and
    shortens the way down by what is left out on the way up; none of this is done here (but ``pyramidfl_utility``).
    """

    norms: ClassVar[bool] = True

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self.gradient = np.full(job.task.num_clients, np.nan)

    def worth(self, update: Update) -> float:
        """By the norm of the change, or by losses."""
        by_norm = self._job.config.job.pyramidfl_utility == "gradient"
        return _by_norm(update) if by_norm else update.utility

    def learn(self, round: int, schedule: Schedule, updates: Sequence[Update]) -> None:
        """Take in a round."""
        super().learn(round, schedule, updates)
        for client in sorted({update.client for update in updates}):
            norms = [_by_norm(update) for update in updates if update.client == client]
            self.gradient[client - 1] = np.mean(norms)

    def refined(self, round: int, schedule: Schedule, clock_s: float) -> Schedule:
        """Drop tensors by rank; then lengthen the training of those who would wait for the slowest, as far as they
        are still online when they end."""
        if not schedule.items:
            return schedule
        ratios = self._ratios(schedule.items)
        items = [replace(item, dropped=self._dropped(round, item, ratios[item.client])) for item in schedule.items]
        clients, computation, communication = self._times(items)
        slack = (computation + communication).max() - computation - communication
        waiting = dict(zip((clients + 1).tolist(), zip(slack.tolist(), computation.tolist(), strict=True), strict=True))
        longer = [self._lengthened(item, *waiting[item.client]) for item in items]
        _, computation, communication = self._times(longer)
        availability = self._job.population.availability
        if availability is not None:
            there = availability.online_at(clients, clock_s + computation + communication)
            stay = set((clients[there] + 1).tolist())
            longer = [new if new.client in stay else item for new, item in zip(longer, items, strict=True)]
            _, computation, communication = self._times(longer)
        refined = replace(schedule, items=longer, computation_s=computation, communication_s=communication)
        return replace(refined, duration_s=float(refined.durations_s.max()))

    def _ratios(self, items: Sequence[WorkItem]) -> dict[int, float]:
        """Share of its update that each client leaves out."""
        job = self._job.config.job
        clients = sorted({item.client for item in items})
        known = self.gradient[np.array(clients) - 1]
        shares = dropout_ratios(known, job.pyramidfl_dropout_low, job.pyramidfl_dropout_high)
        return dict(zip(clients, shares.tolist(), strict=True))

    def _dropped(self, round: int, item: WorkItem, share: float) -> tuple[str, ...]:
        """Names of the parameters that a client leaves out, each with probability ``share``."""
        model = self._job.pool[item.model]
        names = [name for name in parameter_names(model.spec) if name in model.state]
        drawn = stream(self._job.config.job.seed, round, item.client, item.model, "dropped").random(len(names)) < share
        return tuple(name for name, out in zip(names, drawn.tolist(), strict=True) if out)

    def _lengthened(self, item: WorkItem, slack_s: float, computation_s: float) -> WorkItem:
        task, beta = self._job.task, self._job.config.job.pyramidfl_epoch_beta
        samples, batch, steps, epochs = task.local_training(item.client, item.overrides)
        if epochs is None:
            key, passes, per_epoch = "local_steps", steps, -(-samples // batch)
        else:
            key, passes, per_epoch = "local_epochs", epochs, 1
        count = lengthened(passes, per_epoch, slack_s, computation_s, beta)
        return item if count == passes else replace(item, overrides={**item.overrides, key: count})

    def _times(self, items: Sequence[WorkItem]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        job = self._job
        return client_times(
            items, job.pool, job.population, job.task,
            reference_macs=job.config.job.reference_macs, download_bytes=job.download_bytes,
            upload_bytes=job.upload_bytes,
        )  # fmt: skip

    def state(self) -> tuple[State, dict[str, Any]]:
        """What a checkpoint holds: tensors and JSON."""
        tensors, data = super().state()
        return {**tensors, "gradient": torch.from_numpy(self.gradient.copy())}, data

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""
        super().load_state(tensors, data)
        self.gradient = tensors["gradient"].numpy().copy()


def _by_norm(update: Update) -> float:
    assert update.norm is not None  # asked for by `norms`
    return update.norm * min(update.samples, update.trained)
