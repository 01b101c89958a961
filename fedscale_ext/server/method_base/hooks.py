"""What a method is asked for in a job: the hooks, grouped by when they are called."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from fedscale_ext import models
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core import events
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Cost, ModelSpec
from fedscale_ext.core.types import EvaluationPlan, State, Task, Update, WorkItem
from fedscale_ext.population.population import Population
from fedscale_ext.server.method_base.method_tools import MethodTools
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.server.method_base.requirements import check_groups, check_local_training, check_prox, setting_notices
from fedscale_ext.server.privacy import check_options
from fedscale_ext.server.round.stragglers import dropped_bytes
from fedscale_ext.server.scaffold import ControlVariates
from fedscale_ext.tasks import bn_statistics
from fedscale_ext.tasks.client_tensors import ClientTensors


class MethodHooks(MethodTools):
    """Hooks of a method (a `MultiModelAggregator`), grouped by when they are called.

    The base has what hooks may use, and the class attributes by which a method describes itself.
    """

    def __init__(self, config: JobConfig, emit: events.Emit = events.print_event):
        self.params, self._private = self.check_settings(config)
        super().__init__(config, emit)
        for sentence in setting_notices(config, reestimates_statistics(type(self), config)):
            self.notice(sentence)

    @classmethod
    def check_settings(cls, config: JobConfig) -> tuple[Any, bool]:
        """The hyperparameters and whether the job asks for differential privacy, from the configuration only.

        UserError for settings that do not go together, whatever the data are.
        """
        params, private = make_params(cls.Params, config), check_options(config, cls)
        check_local_training(config, cls)
        check_groups(config, params)
        check_prox(config, cls, params)
        if config.job.test_around_training and cls.next_items is MethodHooks.next_items:
            raise UserError(
                "test_around_training is for methods whose summary has a row for each type of device, and "
                f"{config.job.method} has none; remove it"
            )
        return params, private

    # ---- once, before round 1 ----

    def init_state(self, population: Population, task: Task) -> None:
        """Put the first model or models into the pool."""
        raise NotImplementedError

    def settings_idle_with_models(self) -> Iterator[str]:
        """Sentences on settings that have no effect on the models of this job; asked once, after init_state."""
        measured = reestimates_statistics(type(self), self.config)
        asked = ("bn_statistics", "bn_statistics_clients") if measured else ("bn_statistics",)
        keys = [key for key in asked if key in self.config.given]
        if keys and not any(bn_statistics.layers(model.state) for model in self.pool):
            do = "does" if len(keys) == 1 else "do"
            yield f"{', '.join(keys)} {do} nothing: no model of this job has BatchNorm"

    def possible_items(self) -> list[WorkItem]:
        """Items that :meth:`assign` may return, if known before round 1; none by default.

        Used to refuse differential privacy early; the items of each round are checked, too. It must not change state.
        """
        return []

    def client_tensors(self) -> list[ClientTensors]:
        """What is kept of each client from round to round, a kind of tensors each: SCAFFOLD's control variates, where
        the job asks for them. Asked once, after init_state; ``client_tensors_by_kind`` then has them by kind."""
        asked = self.config.job.control_variates
        return [ControlVariates(self.log_dir, self.pool, self.weight, self.eligible)] if asked else []

    # ---- each round ----

    def candidates(self, round: int) -> tuple[np.ndarray, int]:
        """Who may be selected for a round, bool [clients], and how many count. Nobody: a round in which no client
        trains; its models are tested."""
        return self.eligible, self.args.num_participants

    def selection_groups(self) -> np.ndarray | None:
        """Number of the group of each client, int64 [clients], where participants are to come from all groups in
        proportion; None: from all clients alike. Not asked under differential privacy."""
        return None

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """What each participant trains; called before the virtual clock decides who counts."""
        raise NotImplementedError

    def weight(self, item: WorkItem) -> float:
        """Weight of a client's state in the mean of its model. By default, it is the client's number of samples
        (FedAvg), or 1 if the method has a hyperparameter ``weighted`` that is false. Not asked under differential
        privacy, where all weigh the same."""
        weighted = getattr(self.params, "weighted", True)
        return float(self.task.train_sizes[item.client - 1]) if weighted else 1.0

    def collect(self, round: int, update: Update, state: State) -> None:
        """Take in a client's state, where the class sets ``reduces`` to False; called in an order that
        depends only on the plan. The state is not kept for :meth:`aggregate`."""
        raise NotImplementedError

    def expected_shares(self) -> dict[str, float]:
        """Share of a round's participants that is expected to train each model of the pool, before anybody is
        selected; under differential privacy, a model's mean moves by the sum of changes over the expected number
        of its clients. 1 by default: right for one model, cautious for several. 0: nobody can train it."""
        return {model.key: 1.0 for model in self.pool}

    def work_done(self, update: Update) -> WorkItem:
        """The item of a client with what its round really took, for the round's record: as :meth:`assign` has it, by
        default. For methods that learn only afterwards how much a client computed. What clients keep is taken in by
        then."""
        return update.item

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Turn the round's checked updates, sorted by client, into new server state.

        ``means``: by model key, the weighted mean of the states of those who trained it, for each
        model that somebody trained; empty where ``reduces`` or ``needs_states`` is False.
        """
        raise NotImplementedError

    def evolve(self, round: int) -> None:
        """Transform, distil, generate; nothing by default."""

    def finished(self, round: int) -> str | None:
        """Why the job is done before its last round, or None."""
        return None

    def phase(self, round: int) -> str:
        """The method's current phase in a few words, for the progress line; empty if rounds do not differ."""
        return ""

    def last_round(self) -> int:
        """Return the last round that the job is expected to reach. It is shown to the user.

        By default ``rounds``, or the round in which ``stop_macs`` is spent at the mean cost of the rounds so far.
        """
        budget, done = self.config.job.stop_macs, len(self.history)
        if budget is None or not self.spent_macs:
            return int(self.args.rounds)
        return min(int(self.args.rounds), max(done, math.ceil(budget * done / self.spent_macs)))

    # ---- at a test ----

    def evaluation_plan(self) -> EvaluationPlan:
        """Which model each client is served, and which global models are also tested."""
        raise NotImplementedError

    def test_objective(self) -> Mapping[str, Any]:
        """A client's ``conf.objective`` in tests and fine-tuning of its personal model; JSON, empty by default."""
        return {}

    def next_items(self) -> list[WorkItem]:
        """What each client would train in the next round, by client, for the key ``test_around_training``; a method
        that does not override it refuses that key. It must leave all state as it is."""
        raise NotImplementedError

    # ---- figures that a method may replace ----

    def initial_spec(self) -> ModelSpec:
        """The spec of the configuration's ``model`` for this task: a named one, or that of a spec file."""
        return self.trained_spec(self._model())

    def smallest_spec(self) -> ModelSpec:
        """The spec that the device of least capacity affords: that of the key ``capacity_model``. A method whose
        clients may train less than :meth:`initial_spec` overrides what it is where that key is not given."""
        return self._configured(self.config.job.capacity_model or self._model())

    def smallest_cost(self) -> Cost:
        """What training that spec costs the device of least capacity: MACs, and bytes in each direction."""
        return models.cost(self.smallest_spec())

    def learning_rate(self, round: int) -> float:
        """FedScale's schedule: times decay_factor every decay_round rounds, down to min_learning_rate."""
        args = self.args
        return max(args.learning_rate * args.decay_factor ** (round // args.decay_round), args.min_learning_rate)

    def upload_bytes(self, item: WorkItem) -> int:
        """Bytes that a client uploads for an item: as many as it downloads, unless the item says less."""
        whole = self.download_bytes(item) if item.upload is None else item.upload + self._tensor_bytes(item)
        return whole - dropped_bytes(item, self.pool)

    @property
    def masks_tests(self) -> bool:
        """Whether a client is tested with the logits of classes that it has no training samples of set to zero."""
        return self.config.job.mask_test

    # ---- in checkpoints, and at the end ----

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a checkpoint holds in addition to the pool: tensors and JSON."""
        return {}, {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""

    def unfinished_notice(self) -> str | None:
        """A sentence if the job ended before the method's main step, such as pruning or growth; else None."""
        return None

    def lineage(self) -> dict[str, Any]:
        """Where each model of the pool comes from, for the summary; JSON by model key."""
        return {}

    def results(self) -> dict[str, Any]:
        """Further figures for the summary; JSON. A list of objects becomes a table of summary.md."""
        return {}

    def server_bytes(self) -> int:
        """Bytes that the method keeps on the server in addition to the pool, for the summary: hypernetworks."""
        return 0

    def repeated_bytes(self) -> int:
        """Bytes counted twice in the pool, because one model contains another. The summary subtracts them."""
        return 0

    def personal_bytes(self) -> Sequence[float] | None:
        """Bytes of each client's personal model, index client - 1, where they are not those of the pool's model: of
        what it keeps from round to round, which is stored for each client."""
        return None

    def served_bytes(self) -> Sequence[float] | None:
        """Bytes of the model that each client is served, index client - 1, where they are not ``personal_bytes``: of
        methods whose clients keep more than that model, or also need a shared one."""
        return None
