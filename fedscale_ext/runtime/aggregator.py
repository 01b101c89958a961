"""One round in the order in which the data flows: select, assign, schedule, train, collect,
aggregate, evolve, evaluate, record. Methods subclass it and fill in the hooks."""

import logging
import math
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import fedscale.cloud.logger.aggregator_logging as aggregator_logging
import numpy as np
import torch
from overrides import overrides

from fedscale_ext import models
from fedscale_ext.config import JobConfig
from fedscale_ext.data.public import PublicData
from fedscale_ext.errors import UserError
from fedscale_ext.methods.params import make_params
from fedscale_ext.metrics.tensorboard import drop_events
from fedscale_ext.models.spec import ModelSpec
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.population import Population, load_population
from fedscale_ext.population.selection import select, select_strata
from fedscale_ext.privacy.job import JobPrivacy, check_options
from fedscale_ext.runtime import events, full_disk, resume
from fedscale_ext.runtime.client_tensors import ClientTensors
from fedscale_ext.runtime.code_digest import code_digest
from fedscale_ext.runtime.combinations import check_local_training
from fedscale_ext.runtime.control_variates import ControlVariates
from fedscale_ext.runtime.coordinator import Coordinator
from fedscale_ext.runtime.job_data import public_data
from fedscale_ext.runtime.personalise import personalise
from fedscale_ext.runtime.records import JobRecords
from fedscale_ext.runtime.schedule import Schedule, dropped_bytes, schedule_round
from fedscale_ext.runtime.selectors import Guided, guided
from fedscale_ext.runtime.stopwatch import Stopwatch
from fedscale_ext.runtime.work import EvaluationPlan, RoundRecord, State, Task, Update, WorkItem
from fedscale_ext.runtime.workforce import Workforce
from fedscale_ext.streams import stream

_NOTHING = {"seconds": 0.0, "forward_macs": 0.0, "download_bytes": 0, "upload_bytes": 0}


class MultiModelAggregator(Coordinator):
    """Base of every method. Hooks are called in the order in which they stand below.

    Hooks may use ``params`` (an instance of ``Params``), ``config``, ``seed``, ``task``,
    ``population``, ``capacity`` (float64 [clients], MACs per sample), ``pool``, ``history`` (the
    records of finished rounds), :meth:`initial_spec` and :meth:`record`.
    """

    Params: ClassVar[type]
    #: Executors add up the clients' states per model, weighted by :meth:`weight`, and hand back the sums.
    #: A method that must see each client's state sets it to False and gets them in :meth:`collect`.
    reduces: ClassVar[bool] = True
    #: What :meth:`aggregate` learns of clients beside the means, where it uses that: told wherever epsilon is.
    unprotected: ClassVar[str] = ""

    #: Whether BatchNorm's statistics are measured anew before models are tested, unless the configuration says.
    measures_statistics: ClassVar[bool] = False

    #: Why the clients of a method must step by SGD, where they must: the end of a sentence that begins with its name.
    assumes_sgd: ClassVar[str] = ""

    #: Why what clients hand in is not what they were handed and a change of their training, where it is not: as above.
    own_start: ClassVar[str] = ""

    #: Whether its clients choose a path through the model for each batch, so that ``model`` may be a supernet.
    chooses_paths: ClassVar[bool] = False

    #: Why no tensor of a client's update may be left out, where none may: as above.
    needs_whole_updates: ClassVar[str] = ""

    privacy: JobPrivacy | None = None  # of a job with ``dp_noise_multiplier``
    selection: Guided | None = None  # of a job whose ``sample_mode`` is not random

    def __init__(self, config: JobConfig, emit: events.Emit = events.print_event):
        self.params = make_params(self.Params, config)
        self._private = check_options(config, type(self))
        check_local_training(config, type(self))
        args = config.fedscale
        # FedScale opens its TensorBoard writer at once; a resumed job shows its kept rounds anew
        drop_events(Path(args.log_path, "logs", args.job_name, args.time_stamp, "aggregator"))
        super().__init__(config, emit)
        self.seed = config.job.seed
        self.watch = Stopwatch()
        self.log_dir = Path(aggregator_logging.logDir).parent
        self.history: list[RoundRecord] = []
        self.code = code_digest(type(self))
        self.resumed: list[dict[str, Any]] = []  # after which rounds this job was resumed
        self.handed: dict[str, ClientTensors] = {}  # what clients are handed beside models, by kind
        self._internals: dict[str, Any] = {}
        self._internal_states: dict[str, State] = {}
        self._beside: dict[str, Any] = dict(_NOTHING)  # of this round, what clients did beside training

    # ---- hooks ----

    def init_state(self, population: Population, task: Task) -> None:
        """Put the first model or models into the pool."""
        raise NotImplementedError

    def strata(self) -> np.ndarray | None:
        """Number of the group of each client, int64 [clients], where participants are to come from all groups in
        proportion; None: from all clients alike. Not asked under differential privacy."""
        return None

    def candidates(self, round: int) -> tuple[np.ndarray, int]:
        """Who may be selected for a round, bool [clients], and how many count. Nobody: a round in which no client
        trains; its models are tested."""
        return self.eligible, self.args.num_participants

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """What each participant trains; called before the virtual clock decides who counts."""
        raise NotImplementedError

    def client_tensors(self) -> list[ClientTensors]:
        """What is kept of each client from round to round, a kind of tensors each: SCAFFOLD's control variates, where
        the job asks for them. Asked once, after init_state; ``handed`` then has them by kind."""
        asked = self.config.job.control_variates
        return [ControlVariates(self.log_dir, self.pool, self.weight, self.eligible)] if asked else []

    def weight(self, item: WorkItem) -> float:
        """Weight of a client's state in the mean of its model; its number of samples by default (FedAvg).
        Not asked under differential privacy, where all weigh the same."""
        return float(self.task.train_sizes[item.client - 1])

    def expected_shares(self) -> dict[str, float]:
        """Share of a round's participants that is expected to train each model of the pool, before anybody is
        selected; under differential privacy, a model's mean moves by the sum of changes over the expected number
        of its clients. 1 by default: right for one model, cautious for several. 0: nobody can train it."""
        return {model.key: 1.0 for model in self.pool}

    def collect(self, round: int, update: Update, state: State) -> None:
        """Take in a client's state, where the class sets ``reduces`` to False; called in an order that
        depends on the plan alone. The state is not kept for :meth:`aggregate`."""
        raise NotImplementedError

    def aggregate(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Turn the round's checked updates, sorted by client, into new server state.

        ``means``: by model key, the weighted mean of the states of those who trained it, for each
        model that somebody trained; empty where ``reduces`` is False.
        """
        raise NotImplementedError

    def evolve(self, round: int) -> None:
        """Transform, distil, generate; nothing by default."""

    def evaluation_plan(self) -> EvaluationPlan:
        """Which model each client is served, and which global models are tested beside."""
        raise NotImplementedError

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """What a checkpoint holds beside the pool: tensors and JSON."""
        return {}, {}

    def load_state(self, tensors: dict[str, torch.Tensor], data: dict[str, Any]) -> None:
        """Take back what :meth:`state` gave."""

    def finished(self, round: int) -> str | None:
        """Why the job is done before its last round, or None."""
        return None

    def lineage(self) -> dict[str, Any]:
        """Where each model of the pool comes from, for the summary; JSON by model key."""
        return {}

    def results(self) -> dict[str, Any]:
        """Further figures for the summary; JSON. A list of objects becomes a table of summary.md."""
        return {}

    # ---- what hooks may use ----

    def initial_spec(self) -> ModelSpec:
        """The spec of the configuration's ``model`` for this task: a named one, or that of a spec file."""
        spec = self._configured(self.args.model)
        if models.searched(spec) and not self.chooses_paths:
            raise UserError(
                f"the model {self.args.model} is a supernet, and {self.config.job.method} does not choose among its "
                "operators: name a path of it, such as cnn_l_smallest or a spec file with one operator per layer"
            )
        return spec

    def smallest_spec(self) -> ModelSpec:
        """The spec that the device of least capacity affords: that of the key ``capacity_model``. A method whose
        clients may train less than :meth:`initial_spec` overrides what it is where that key is not given."""
        return self._configured(self.config.job.capacity_model or self.args.model)

    def _configured(self, model: str) -> ModelSpec:
        return models.configured_spec(model, self.task.input_shape, self.task.num_classes)

    def public_data(self) -> PublicData:
        """The samples that the server alone holds; UserError where the configuration asks for none."""
        return public_data(self.config, self.data_info["digest"])

    @property
    def static_statistics(self) -> bool:
        """Whether BatchNorm's statistics are measured anew before models are tested."""
        asked = self.config.job.bn_statistics
        return self.measures_statistics if asked == "auto" else asked == "federated"

    def charge(self, *, seconds: float, forward_macs: float, download_bytes: int, upload_bytes: int) -> None:
        """What clients did beside training in this round counts towards it: sums over them, and how many virtual
        ``seconds`` it took."""
        self._beside.update(
            seconds=seconds, forward_macs=forward_macs, download_bytes=download_bytes, upload_bytes=upload_bytes
        )

    def keep_state(self) -> None:
        """Write a checkpoint in the midst of a round that changes no model before :meth:`assign` returns: a resumed
        job begins this round anew, with the method's state as it is now."""
        resume.save_job(self, self.round - 1)

    def record(self, name: str, value: Any) -> None:
        """Keep a figure of this round for internals.jsonl, where ``record_internals`` asks for it."""
        if self.config.job.record_internals:
            self._internals[name] = value

    def record_state(self, name: str, state: State) -> None:
        """Keep weights of this round the same way; files of the last ``checkpoint_keep`` rounds stay."""
        if self.config.job.record_internals:
            self._internal_states[name] = state

    # ---- the job ----

    @full_disk.explained
    @overrides
    def run(self) -> dict[str, Any]:
        """Train ``rounds`` rounds, test the final models and write the results; returns the summary."""
        try:
            self.setup_env()
            self.init_control_communication()
            info = self.wait_for_executors()
            self.task = self._task(info.data, info.train_sizes, info.test_sizes)
            self.data_info = {**info.data, "digest": info.digest}
            self.workforce = Workforce(self, info)
            self.init_model()
            self.records = JobRecords(self)
            done, marks = resume.load_job(self) if self.config.job.resumes else (0, {})
            self.history = self.records.begin(done, marks)
            for kept in self.handed.values():
                kept.files.drop_after(done)
            self.emit(self._ready())
            stopped = None
            if self.privacy is not None:
                self.notice(self.privacy.announcement(self.args.rounds))
                stopped = self.privacy.spent()
            while done < self.args.rounds and stopped is None:
                done += 1
                stopped = self._run_round(done)
            self._report_dropped()
            self.emit({"event": "trained"})  # from here on, an executor that ends is no loss
            self.board.close()  # executors end while the results are written
            return self.records.finish(stopped)
        except SystemExit:
            self.farewell_s = 0.0  # told to stop now: so are the executors
            raise
        finally:
            self.stop()

    @overrides
    def setup_env(self) -> None:
        """One thread: executors use the cores meanwhile. Nothing global is seeded: every draw has its own stream."""
        torch.set_num_threads(1)

    @overrides
    def init_model(self) -> None:
        """Population, capacities, and the method's first models."""
        args, job = self.args, self.config.job
        self.population = load_population(
            self.task.num_clients, args.device_conf_file, args.device_avail_file, self.seed
        )
        smallest = models.cost(self.smallest_spec())
        self.capacity = capacities(
            self.population,
            job.capacity_rule,
            smallest,
            # by epochs, a device has as much to compute as it has samples
            local_steps=args.local_steps if job.local_epochs is None else job.local_epochs,
            batch_size=args.batch_size if job.local_epochs is None else self.task.train_sizes,
            reference_macs=job.reference_macs,
            deadline_s=job.deadline_s,
            spread=job.capacity_spread,
        )
        self.notice(f"clients are tested on {self.data_info['test_source']}")
        strangers = self.data_info["test_only_clients"]
        if strangers:
            self.notice(f"{strangers} clients of test.csv have no training samples and are left out")
        sizes = self.task.train_sizes
        self.eligible = (sizes >= max(1, args.filter_less)) & (sizes <= args.filter_more)
        if not self.eligible.all():
            self.notice(
                f"{int((~self.eligible).sum())} of {len(sizes)} clients have fewer than filter_less={args.filter_less} "
                f"or more than filter_more={args.filter_more:g} training samples and never train"
            )
        if args.num_participants > self.eligible.sum():
            raise UserError(
                f"num_participants {args.num_participants} is above the {int(self.eligible.sum())} clients that may "
                "train; lower it, or lower filter_less"
            )
        if self._private:
            self.privacy = JobPrivacy(self.config, self.eligible, self.unprotected)
        if (job.min_updates or 1) > args.num_participants:
            raise UserError(
                f"min_updates {job.min_updates} is above num_participants {args.num_participants}, the most updates "
                "of a round; lower it"
            )
        self.init_state(self.population, self.task)
        self.handed = {kept.kind: kept for kept in self.client_tensors()}
        self.selection = guided(self)

    def _run_round(self, number: int) -> str | None:
        self.round = number
        began = time.monotonic()
        self._internals, self._internal_states, self._beside = {}, {}, dict(_NOTHING)
        able, most = self.candidates(number)
        with self.watch("select"):
            selected, offline = self._select(number, able, most)
        with self.watch("assign"):
            items = self.assign(number, selected)
        with self.watch("schedule"):
            schedule = schedule_round(
                items,
                self.pool,
                self.population,
                self.task,
                clock_s=self.global_virtual_clock,
                collect=len(items) if self.privacy and self.privacy.sampling else most,
                reference_macs=self.config.job.reference_macs,
                traffic=self.traffic,
                upload=self.uploaded,
            )
            if self.selection is not None and items:
                schedule = self.selection.refined(number, schedule)
        updates, means, failed = self.workforce.train(number, schedule.items)
        self.round_duration = schedule.duration_s + self._beside["seconds"]
        self.global_virtual_clock += self.round_duration
        record = self._round_record(number, schedule, updates, failed, len(selected), offline)
        if self.selection is not None and items:
            self.selection.learn(number, schedule, updates)
        if updates or means:  # noise alone, where privacy is on and nobody took part
            with self.watch("aggregate"):
                self.aggregate(number, updates, means)
            with self.watch("evolve"):
                self.evolve(number)
        self.pool.drop_transient()
        reason = self.finished(number)
        if self.privacy is not None:
            record.privacy = self.privacy.figures()
            reason = reason or self.privacy.spent()
        last = number == self.args.rounds or reason is not None
        if last or number == 1 or number % self.args.eval_interval == 0 or not items:
            with self.watch("evaluate"):
                record.evaluation = self.workforce.evaluate(number)
        epochs = self.config.job.personalise_epochs
        if last and epochs and record.evaluation is not None:
            with self.watch("personalise"):
                record.personalised = personalise(self.workforce, number, record.evaluation.serve, epochs)
        record.models = len(self.pool)
        record.cohort_sizes = {key: size for key, size in self.workforce.sizes.items() if key in self.pool}
        record.wall_s = time.monotonic() - began
        record.seconds = self.watch.read()
        record.executor_seconds = self.workforce.seconds()
        record.faults = self.board.faults()
        self.history.append(record)
        with self.watch("record"):
            self.records.round(record, self._internals, self._internal_states)
            if last or number % self.config.job.checkpoint_interval == 0:
                resume.save_job(self, number)
        if reason is not None:
            self.notice(f"stopped after round {number}: {reason}")
        return reason

    def _select(self, number: int, able: np.ndarray, most: int) -> tuple[np.ndarray, int]:
        """Participants among the clients that are ``able`` and online now, and how many of these are not; waits in
        virtual time until somebody is."""
        availability = self.population.availability
        online = able
        may = able if self.privacy is None else self.privacy.allowed()
        if not able.any():
            return np.zeros(0, dtype=np.int64), 0
        if availability is not None:
            online = able & availability.online(self.global_virtual_clock)
            if not (online & may).any():
                then = availability.next_online(self.global_virtual_clock, may)
                if then is None:
                    raise UserError("no client that may train is ever online: check device_avail_file and filter_less")
                self.global_virtual_clock = then
                online = able & availability.online(then)
        wanted, offline = int(most * self.args.overcommitment), int(able.sum() - online.sum())
        key = (self.args.sample_seed, number, "select")
        if self.privacy is not None:
            return self.privacy.select(online, wanted, *key), offline
        rng, strata = stream(self.seed, *key), self.strata()
        if self.selection is not None:
            chosen = self.selection.select(number, online, wanted, rng, strata)
        else:
            chosen = select(online, wanted, rng) if strata is None else select_strata(online, strata, wanted, rng)
        return chosen, offline

    def traffic(self, item: WorkItem) -> int:
        """Bytes that a client is handed, and hands in: the model, and what counts beside it."""
        model = self.pool[item.model].cost.bytes if item.bytes is None else item.bytes
        return model + self._handed_bytes(item)

    def uploaded(self, item: WorkItem) -> int:
        """Bytes that a client hands in: what it was handed, unless the item says less."""
        whole = self.traffic(item) if item.upload is None else item.upload + self._handed_bytes(item)
        return whole - dropped_bytes(item, self.pool)

    def _handed_bytes(self, item: WorkItem) -> int:
        return sum(kept.counted(item) for kept in self.handed.values())

    def learning_rate(self, number: int) -> float:
        """FedScale's schedule: times decay_factor every decay_round rounds, down to min_learning_rate."""
        args = self.args
        return max(args.learning_rate * args.decay_factor ** (number // args.decay_round), args.min_learning_rate)

    def _round_record(
        self,
        number: int,
        schedule: Schedule,
        updates: list[Update],
        failed: Counter[str],
        selected: int,
        offline: int,
    ) -> RoundRecord:
        beside, cost = self._beside, {model.key: model.cost for model in self.pool}
        trained = (self.pool[update.item.model] for update in updates)
        assignments = Counter(model.whole if model.transient else model.key for model in trained)
        computed: dict[str, float] = {}  # samples by model, each for as much of it as was computed
        for update in updates:
            model = update.item.model
            computed[model] = computed.get(model, 0.0) + update.trained * update.item.effort
        weight = sum(update.trained for update in updates)
        loss = math.fsum(update.loss * update.trained for update in updates) / weight if weight else math.nan
        return RoundRecord(
            round=number,
            virtual_clock_s=self.global_virtual_clock,
            round_duration_s=self.round_duration,
            client_durations_s=schedule.durations_s.tolist(),
            wall_s=0.0,
            selected=selected,
            participants=sorted({update.client for update in updates}),
            assignments=dict(assignments),
            offline=schedule.offline + offline,
            stragglers=schedule.stragglers,
            failed=dict(failed),
            train_loss=loss,
            learning_rate=self.learning_rate(number),
            models=len(self.pool),
            forward_macs=float(sum(samples * cost[key].forward_macs for key, samples in computed.items()))
            + beside["forward_macs"],
            training_macs=float(sum(samples * cost[key].training_macs for key, samples in computed.items()))
            + beside["forward_macs"],
            download_bytes=sum(map(self.traffic, schedule.items)) + beside["download_bytes"],
            upload_bytes=sum(self.uploaded(update.item) for update in updates) + beside["upload_bytes"],
        )

    def _task(self, data: dict[str, Any], train_sizes: np.ndarray, test_sizes: np.ndarray) -> Task:
        channels, height, width = data["input_shape"]
        return Task(
            input_shape=(channels, height, width),
            num_classes=data["num_classes"],
            train_sizes=train_sizes,
            test_sizes=test_sizes,
            local_steps=self.args.local_steps,
            batch_size=self.args.batch_size,
            local_epochs=self.config.job.local_epochs,
        )

    def _report_dropped(self) -> None:
        """Nothing is dropped without a word: messages that were refused, results that nobody awaited,
        executors that were lost."""
        total = sum((Counter(record.faults) for record in self.history), Counter(self.board.faults()))
        refused = sum(self.refusals.counts().values())
        if refused:
            total["messages refused"] += refused
        if total:
            what = ", ".join(f"{count} {fault}" for fault, count in sorted(total.items()))
            self.notice(f"met and mended on the way: {what}; the aggregator's log says more")

    def _ready(self) -> dict[str, Any]:
        kind = "generated" if self.data_info["generated"] else "real"
        return {
            "event": "ready",
            "clients": self.task.num_clients,
            "executors": len(self.executors),
            "data": f"{kind}: {self.data_info['name']}",
            "population": self.population.source,
            "model": self.args.model,
            "rounds": self.args.rounds,
            "log_dir": str(self.log_dir),
        }

    def notice(self, message: str) -> None:
        """Tell whoever watches the job, and the log."""
        logging.info(message)
        self.emit({"event": "notice", "message": message})
