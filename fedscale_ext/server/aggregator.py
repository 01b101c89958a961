"""One round in the order in which the data flows: select, assign, schedule, train, collect,
aggregate, evolve, evaluate, record. Methods subclass it and fill in the hooks."""

import math
import time
from collections import Counter
from typing import Any

import numpy as np
import torch
from overrides import overrides

from fedscale_ext import models
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import RoundRecord, Task, Update, is_own
from fedscale_ext.data.importing.notes import untested_note
from fedscale_ext.data.job_data import public_notice, split_notice
from fedscale_ext.data.named_files import file_digests
from fedscale_ext.metrics.convergence import converged_round, mean_accuracies
from fedscale_ext.population.capacity import capacities
from fedscale_ext.population.population import load_population
from fedscale_ext.population.selection import select, select_strata
from fedscale_ext.server import resume
from fedscale_ext.server.dispatcher import Workforce
from fedscale_ext.server.guided_selection import guided
from fedscale_ext.server.hook_checks import check_items
from fedscale_ext.server.hooks import NOTHING, MethodHooks
from fedscale_ext.server.privacy import JobPrivacy
from fedscale_ext.server.records import JobRecords
from fedscale_ext.server.schedule import Schedule, schedule_round
from fedscale_ext.tasks.around_training import around_training
from fedscale_ext.tasks.personalise import personalise
from fedscale_ext.tasks.test_on_all import test_on_all
from fedscale_ext.transport.registration import ExecutorInfo
from fedscale_ext.transport.unit_ledger import told
from fedscale_ext.util import full_disk

_NEVER_ONLINE = "no client that may train is ever online: check device_avail_file and filter_less"


class MultiModelAggregator(MethodHooks):
    """Base of every method: runs a job and asks the hooks, which :class:`MethodHooks` declares."""

    @full_disk.explained
    @overrides
    def run(self) -> dict[str, Any]:
        """Train ``rounds`` rounds, test the final models and write the results; returns the summary."""
        try:
            self.setup_env()
            self.init_control_communication()
            self.prepare(self.wait_for_executors())
            first_notices = list(self.notices)
            done, marks = resume.load_job(self) if self.config.job.resumes else (0, {})
            # only now: after a refused checkpoint, header.json is still that of its run
            self.records = JobRecords(self, first_notices)
            self.history = self.records.begin(done, marks)
            for kept in self.handed.values():
                kept.files.drop_after(done)
            self.emit(self.ready())
            if self.wandb is not None:
                self.notice(f"Weights & Biases has this job at {self.wandb.where}")
            stopped = self._converged()
            if self.privacy is not None:
                self.notice(self.privacy.announcement(self.args.rounds))
                stopped = stopped or self.privacy.spent()
            while done < self.args.rounds and stopped is None:
                done += 1
                stopped = self._run_round(done)
            self._report_dropped()
            self.emit({"event": "trained"})  # from here on, an executor that ends is no loss
            self.board.close()  # executors end while the results are written
            return self.records.finish(stopped)
        except (SystemExit, KeyboardInterrupt):
            self.farewell_s = 0.0  # told to stop now: so are the executors
            raise
        finally:
            self.stop()

    def prepare(self, info: ExecutorInfo) -> None:
        """Everything before the first round that can refuse a job, from what executors report of the data.

        A check of a job (entry/job_check.py) calls it without executors.
        """
        self.task = self._task(info)
        self.data_info = {**info.data, "digest": info.digest}
        self.file_digests = file_digests(self.config)
        self.majority_correct = info.majority_correct
        self.most_frequent_correct = info.most_frequent_correct
        self.workforce = Workforce(self, info)
        self.init_model()

    @overrides
    def setup_env(self) -> None:
        """One thread: executors use the cores meanwhile. Nothing global is seeded: every draw has its own stream."""
        torch.set_num_threads(1)

    @overrides
    def init_model(self) -> None:
        """Population, capacities, and the method's first models."""
        args, job = self.args, self.config.job
        self.population = load_population(
            self.task.client_names, args.device_conf_file, args.device_avail_file, self.seed, job.device_match
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
        if (split := split_notice(self.config, self.data_info["test_source"])) is not None:
            self.notice(split)
        for note in self.data_info["notes"]:
            self.notice(f"data: {one_line(note, 1000)}")
        if untested := int((self.task.test_sizes == 0).sum()):
            self.notice(untested_note(untested, self.task.num_clients))
        strangers = self.data_info["test_only_clients"]
        if strangers:
            self.notice(f"{strangers} clients of test.csv have no training samples and are left out")
        sizes = self.task.train_sizes
        self.eligible = (sizes >= max(1, args.filter_less)) & (sizes <= args.filter_more)
        if not self.eligible.all():
            more = f" or more than filter_more={args.filter_more:g}" if "filter_more" in self.config.given else ""
            self.notice(
                f"{int((~self.eligible).sum())} of {len(sizes)} clients have fewer than filter_less={args.filter_less}"
                f"{more} training samples and never train"
            )
        if args.num_participants > self.eligible.sum():
            raise UserError(
                f"num_participants {args.num_participants} is above the {int(self.eligible.sum())} clients that may "
                "train; lower it, or lower filter_less"
            )
        reachable = self.population.ever_online()
        if not (self.eligible & reachable).any():
            raise UserError(_NEVER_ONLINE)
        if never := int((~reachable).sum()):
            self.notice(f"{never:,} of {len(reachable):,} clients are never online and never train")
        if self._private:
            self.privacy = JobPrivacy(self.config, self.eligible, self.unprotected)
        if (job.min_updates or 1) > args.num_participants:
            raise UserError(
                f"min_updates {job.min_updates} is above num_participants {args.num_participants}, the most updates "
                "of a round; lower it"
            )
        self.init_state(self.population, self.task)
        if job.initial_weights is not None and not self.weights_given:
            raise UserError(
                f"initial_weights are of one model, and {job.method} does not start from the weights of one; leave the "
                "key out"
            )
        if (public := public_notice(self.config, self.public_data_used)) is not None:
            self.notice(public)
        self.handed = {kept.kind: kept for kept in self.client_tensors()}
        self.selection = guided(self)

    def _run_round(self, number: int) -> str | None:
        self.round = number
        began = time.monotonic()
        self._internals, self._internal_states, self._beside = {}, {}, dict(NOTHING)
        able, most = self.candidates(number)
        with self.watch("select"):
            selected, offline = self._select(number, able, most)
        with self.watch("assign"):
            items = list(self.assign(number, selected))
            check_items(items, self.config.job.method, self.pool, self.task.num_clients)
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
            reason = reason or self._converged(record)
            last = last or reason is not None
            if last:
                self._report_untrained(record)
        epochs = self.config.job.personalise_epochs
        if last and epochs and record.evaluation is not None:
            with self.watch("personalise"):
                record.personalised = personalise(self.workforce, number, record.evaluation.serve, epochs)
        if last and self.config.job.test_on_all and record.evaluation is not None:
            with self.watch("on_all"):
                record.on_all = test_on_all(self.workforce, number, record.evaluation.serve)
        if last and self.config.job.test_around_training and record.evaluation is not None:
            with self.watch("around_training"):
                serve = record.evaluation.serve
                found = around_training(self.workforce, number, serve, self.next_items())
                record.before_training, record.after_training = found
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

    def _converged(self, record: RoundRecord | None = None) -> str | None:
        """Why the job is done where ``stop_gain`` asks for its end: by the rounds so far, and one more ``record``."""
        job = self.config.job
        if job.stop_gain is None:
            return None
        seen = mean_accuracies(self.history if record is None else [*self.history, record])
        if converged_round(seen, job.stop_gain, job.stop_patience, job.stop_unit) is None:
            return None
        return f"accuracy rose by no more than {job.stop_gain:g} over {job.stop_patience} {job.stop_unit}"

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
                    raise UserError(_NEVER_ONLINE)
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

    def _task(self, info: ExecutorInfo) -> Task:
        channels, height, width = info.data["input_shape"]
        return Task(
            input_shape=(channels, height, width),
            num_classes=info.data["num_classes"],
            train_sizes=info.train_sizes,
            test_sizes=info.test_sizes,
            local_steps=self.args.local_steps,
            batch_size=self.args.batch_size,
            local_epochs=self.config.job.local_epochs,
            client_names=info.client_names,
        )

    def _report_untrained(self, record: RoundRecord) -> None:
        """Clients that keep models of their own and that no round has trained are tested all the same."""
        evaluation = record.evaluation
        if evaluation is None or not any(map(is_own, evaluation.serve)):
            return
        trained = {client for each in (*self.history, record) for client in each.participants}
        tested = np.flatnonzero(evaluation.count > 0) + 1
        if untrained := len(set(tested.tolist()) - trained):
            self.notice(f"{untrained:,} of {len(tested):,} tested clients never trained: their accuracy is that of the "
                        "initial weights")  # fmt: skip

    def _report_dropped(self) -> None:
        """Nothing is dropped without a word: messages that were refused, results that nobody awaited,
        executors that were lost."""
        total = sum((Counter(record.faults) for record in self.history), Counter(self.board.faults()))
        refused = sum(self.refusals.counts().values())
        if refused:
            total["messages refused"] += refused
        if total:
            self.notice(f"met and mended on the way: {told(total)}; the aggregator's log says more")

    def ready(self) -> dict[str, Any]:
        """The event that says what the job is, once it is prepared."""
        kind = "generated" if self.data_info["generated"] else "real"
        return {
            "event": "ready",
            "clients": self.task.num_clients,
            "executors": len(self.executors),
            "data": f"{kind}: {self.data_info['name']}",
            "population": self.population.source,
            "model": self.args.model,
            "rounds": self.last_round(),
            "log_dir": str(self.log_dir),
        }
