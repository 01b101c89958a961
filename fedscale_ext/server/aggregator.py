"""The aggregator of a job: one round in the order in which the data flows.

select -> assign -> schedule -> train -> aggregate -> evolve -> evaluate -> record. Methods subclass
:class:`MultiModelAggregator` and fill in the hooks of :class:`~fedscale_ext.server.method_base.hooks.MethodHooks`.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from overrides import overrides

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import RoundRecord, State, Update, WorkItem
from fedscale_ext.data.job_data import public_notice, source_notice
from fedscale_ext.data.named_files import file_digests
from fedscale_ext.metrics.by_class import why_without_classes
from fedscale_ext.metrics.job_folder.chain import MEASURED, MODELS
from fedscale_ext.metrics.job_folder.header import JobHeader, job_header
from fedscale_ext.metrics.job_folder.json_lines import Mark
from fedscale_ext.metrics.scheduled_tests import evaluation_is_due
from fedscale_ext.metrics.summary import JobResult, floors
from fedscale_ext.population.population import load_population
from fedscale_ext.population.selection.participants import select, select_from_groups
from fedscale_ext.server.announcements import faults_notice, offline_notice, ready_event, round_event, untrained_notice
from fedscale_ext.server.checkpoints.job_checkpoints import METHOD, JobCheckpoints, Origin, Progress, Stateful
from fedscale_ext.server.eligibility import device_capacities, eligible_clients, online_clients, report_data, task_of
from fedscale_ext.server.final_tests import run_final_tests
from fedscale_ext.server.guided_selection import guided
from fedscale_ext.server.method_base.hook_checks import checked_candidates, checked_figures, checked_items, checked_text
from fedscale_ext.server.method_base.hooks import MethodHooks
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.server.privacy import JobPrivacy, check_work
from fedscale_ext.server.records import JobRecords
from fedscale_ext.server.round.dispatcher import Dispatcher
from fedscale_ext.server.round.divergence import end_notice
from fedscale_ext.server.round.round_record import OtherWork, round_record
from fedscale_ext.server.round.stopping import budget_spent, converged
from fedscale_ext.server.round.stragglers import Schedule, schedule_round
from fedscale_ext.tasks.kind import JobContext
from fedscale_ext.transport.registration import ExecutorInfo
from fedscale_ext.util import full_disk


class MultiModelAggregator(MethodHooks):
    """Base of every method: runs a job and calls the hooks, which :class:`MethodHooks` declares."""

    @full_disk.explained
    @overrides
    def run(self) -> dict[str, Any]:
        """Train ``rounds`` rounds, test the final models and write the results; returns the summary."""
        try:
            self.setup_env()
            self.init_control_communication()
            info = self.wait_for_executors()
            if (source := source_notice(self.config, len(self.executors), self.local_digest)) is not None:
                self.notice(source)
            self.prepare(info)
            done = self._begin()
            stopped = self._over_before_it_began(done)
            self._wall_from = time.monotonic()
            while done < self.args.rounds and stopped is None:
                done += 1
                stopped = self.run_round(done)
            if (faults := faults_notice(self.history, self.board.faults(), self.refusals.counts())) is not None:
                self.notice(faults)
            self.emit({"event": "trained"})  # from here on, an executor that ends is no loss
            self.board.close()  # executors end while the results are written
            return self._finish(stopped)
        except (SystemExit, KeyboardInterrupt):
            self.farewell_s = 0.0  # the user stops the job now: executors are not waited for
            raise
        finally:
            self.stop()

    def run_round(self, round: int) -> str | None:
        """Run one round; returns why it was the last one, or None."""
        self.round = round
        self._internals, self._internal_states, self._other_work = {}, {}, OtherWork()

        able, target = checked_candidates(self.candidates(round), self.config.job.method, self.task.num_clients)
        participants, offline = self.select_participants(round, able, target)
        items = self.assign_work(round, participants)
        schedule = self.schedule_work(round, items, target)
        updates, means, failed = self.dispatcher.train(round, schedule.items)
        record = self._record_of(schedule, updates, failed, len(participants), offline)
        self.global_virtual_clock = record.virtual_clock_s
        if self.selection is not None:
            self.selection.learn(round, schedule, updates)
        self.aggregate_updates(round, updates, means)

        reason = self._reason_to_stop(record)
        last = round == self.args.rounds or reason is not None
        due = evaluation_is_due(self.args.eval_interval, self.config.job.eval_macs, record, self.spent_macs)
        if last or due or not items:
            with self.watch("evaluate"):
                may_be_last = last or self.config.job.stop_gain is not None
                record.evaluation = self.dispatcher.evaluate(round, may_be_last and self._has_classes)
            reason = reason or converged(self.config.job, self.args.eval_interval, [*self.history, record])
            last = last or reason is not None
        if last:
            self.evaluate_at_the_end(record)
        self._write_record(record, last)
        if reason is not None:
            self.notice(f"stopped after round {round}: {reason}")
        return reason

    # ---- before the first round ----

    def prepare(self, info: ExecutorInfo) -> None:
        """Everything before the first round that can refuse a job, from what executors report of the data.

        A check of a job (entry/job_check.py) calls it without executors.
        """
        self.task = task_of(self.config, info)
        self.data_info = {**info.data, "digest": info.digest}
        self.file_digests = file_digests(self.config)
        self.device_name = info.device_name
        self.majority_correct = info.majority_correct
        self.most_frequent_correct = info.most_frequent_correct
        self.init_model()
        if self.privacy is not None:
            self.notice(self.privacy.announcement(self.args.rounds))
        norms = self.selection is not None and self.selection.norms
        self.dispatcher = Dispatcher(
            self.context, self, info, self.run_units, privacy=self.privacy, watch=self.watch, reports_norms=norms
        )

    def _context(self) -> JobContext:
        """What is fixed of the job from now on."""
        return JobContext(
            config=self.config,
            task=self.task,
            pool=self.pool,
            population=self.population,
            capacity=self.capacity,
            eligible=self.eligible,
            client_tensors_by_kind=self.client_tensors_by_kind,
            returns="nothing" if not self.needs_states else "sum" if self.reduces else "states",
            reestimates_statistics=reestimates_statistics(type(self), self.config),
            masks_tests=self.masks_tests,
            learning_rate=self.learning_rate,
            download_bytes=self.download_bytes,
            upload_bytes=self.upload_bytes,
            make_unit=self.make_unit,
            notice=self.notice,
            record=self.record,
        )

    @overrides
    def setup_env(self) -> None:
        """One thread: executors use the cores meanwhile. Nothing global is seeded: every draw has its own stream."""
        torch.set_num_threads(1)

    @overrides
    def init_model(self) -> None:
        """Population, capacities, eligible clients, and the method's first models."""
        args, job = self.args, self.config.job
        self.population = load_population(
            self.task.client_names, args.device_conf_file, args.device_avail_file, self.seed, job.device_match
        )
        self.capacity = device_capacities(self.config, self.task, self.population, self)
        report_data(self.config, self.task, self.population, self.data_info, self.notice)
        self.eligible = eligible_clients(self.config, self.task, self.population, self.notice)
        if self._private:
            self.privacy = JobPrivacy(self.config, self.eligible, self.population.ever_online(), self.unprotected)
        self.init_state(self.population, self.task)
        for sentence in self.settings_idle_with_models():
            self.notice(sentence)
        if self.privacy is not None:
            check_work(job.method, self.possible_items(), self.pool)
        if job.initial_weights is not None and not self.weights_given:
            raise UserError(
                f"initial_weights are of one model, and {job.method} does not start from the weights of one; leave the "
                "key out"
            )
        if (public := public_notice(self.config, self.public_data_used)) is not None:
            self.notice(public)
        self.client_tensors_by_kind = {tensors.kind: tensors for tensors in self.client_tensors()}
        self.context = self._context()
        self.selection = guided(self.context)

    def _begin(self) -> int:
        """Open the records, continue from a checkpoint where the job resumes; returns how many rounds are done."""
        self._first_notices = list(self.notices)
        origin = Origin(self.config, self.data_info["digest"], self.file_digests, self.code)
        self.checkpoints = JobCheckpoints(self.log_dir, origin, self.client_tensors_by_kind.values())
        done, marks = self._resume() if self.config.job.resumes else (0, {})
        # only now: after a refused checkpoint, header.json is still that of its run
        self.records = JobRecords(self.log_dir, self.context, self._header(), self.log_writer, self.wandb)
        self.checkpoints.drop_after(done)  # first: no checkpoint may need lines that are cut, wherever a job is killed
        self.history = self.records.begin(done, marks)
        for record in self.history:  # one after another, as rounds do: sum() rounds otherwise
            self.spent_macs += record.training_macs
        executors, rounds = len(self.executors) or len(self.infos), self.last_round()
        self.emit(ready_event(self.config, self.data_info, self.population, executors, rounds, self.log_dir))
        if self.wandb is not None:
            self.notice(f"Weights & Biases has this job at {self.wandb.where}")
        return done

    def _header(self) -> JobHeader:
        """Describe the job before its first round, as header.json."""
        return job_header(
            job_name=self.config.fedscale.job_name,
            method=self.config.job.method,
            params=dataclasses.asdict(self.params),
            config=self.config.echo(),
            seed=self.seed,
            data_name=self.data_info["name"],
            data_generated=self.data_info["generated"],
            data_digest=self.data_info["digest"],
            named_files=self.file_digests,
            population=self.population.source,
            num_clients=self.task.num_clients,
            public_data_used=self.public_data_used,
            floor=floors(self.majority_correct, self.most_frequent_correct, self.task.test_sizes),
            notices=self._first_notices,
            beyond_capacity=self.beyond_capacity,
            device=self.device_name,
        )

    def _components(self) -> dict[str, Stateful]:
        """Everything whose state a checkpoint has, in the order in which it is restored."""
        parts = {MODELS: self.pool, METHOD: self, MEASURED: self.dispatcher.cohort_sizes,
                 "privacy": self.privacy, "selection": self.selection, **self.client_tensors_by_kind}  # fmt: skip
        return {name: part for name, part in parts.items() if part is not None}

    def _resume(self) -> tuple[int, dict[str, Mark]]:
        """Continue from a checkpoint; returns how many rounds are done, and how far the records reached by then."""
        done, progress, news = self.checkpoints.load(self._components())
        self.global_virtual_clock, self.resumed = progress.clock_s, progress.resumed
        self.notices |= dict.fromkeys(progress.notices)
        for sentence in news:
            self.notice(sentence)
        return done, progress.records

    def save_checkpoint(self, round: int, last: bool = False) -> None:  # noqa: D102
        later = [each for each in self.notices if each not in self._first_notices]  # those may not hold in more rounds
        progress = Progress(self.global_virtual_clock, self.records.reached(), self.resumed, later)
        self.checkpoints.save(round, self._components(), progress, last=last, in_next_round=round < self.round)

    def _over_before_it_began(self, done: int) -> str | None:
        """Why a job that resumes after ``done`` rounds trains no further; None where it does, and for a new job."""
        job = self.config.job
        stopped = checked_text(self.finished(done), "finished", job.method) if done else None
        stopped = stopped or converged(job, self.args.eval_interval, self.history) or budget_spent(job, self.spent_macs)
        return stopped or (self.privacy.spent() if self.privacy is not None else None)

    # ---- the steps of a round ----

    def select_participants(self, round: int, able: np.ndarray, target: int) -> tuple[np.ndarray, int]:
        """Select a round's participants; virtual time passes until a client that may train is online.

        Args:
            round: its number.
            able: bool [clients], whom the method's hook ``candidates`` names.
            target: how many participants count; ``overcommitment`` times as many are selected.

        Returns:
            Sorted ids of the participants, int64, and how many able clients were offline.

        """
        with self.watch("select"):
            if not able.any():
                return np.zeros(0, dtype=np.int64), 0
            allowed = able if self.privacy is None else self.privacy.allowed()
            online, self.global_virtual_clock = online_clients(
                self.population, able, allowed, self.global_virtual_clock
            )
            count, offline = int(target * self.args.overcommitment), int(able.sum() - online.sum())
            key = (self.args.sample_seed, round, "select")
            if self.privacy is not None:
                return self.privacy.select(online, count, *key), offline
            rng, groups = stream(self.seed, *key), self.selection_groups()
            if self.selection is not None:
                return self.selection.select(round, online, count, rng, groups), offline
            if groups is not None:
                return select_from_groups(online, groups, count, rng), offline
            return select(online, count, rng), offline

    def assign_work(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Ask the method what each participant trains, and check its answer."""
        with self.watch("assign"):
            answer = self.assign(round, participants)
            return checked_items(answer, self.config.job.method, self.pool, self.task.num_clients)

    def schedule_work(self, round: int, items: list[WorkItem], target: int) -> Schedule:
        """Decide by the virtual clock whose work counts: the ``target`` fastest that stay online."""
        with self.watch("schedule"):
            schedule = schedule_round(
                items,
                self.pool,
                self.population,
                self.task,
                clock_s=self.global_virtual_clock,
                collect=len(items) if self.privacy and self.privacy.sampling else target,
                reference_macs=self.config.job.reference_macs,
                download_bytes=self.download_bytes,
                upload_bytes=self.upload_bytes,
            )
            self.deadline.scheduled(round, schedule)
            if self.selection is None or not items:
                return schedule
            return self.selection.refined(round, schedule, self.global_virtual_clock)

    def aggregate_updates(self, round: int, updates: list[Update], means: Mapping[str, State]) -> None:
        """Let the method turn the updates into new models, then transform, distil or generate."""
        if updates or means:  # only noise, where privacy is on and nobody took part
            with self.mac_counter.counting():
                with self.watch("aggregate"):
                    self.aggregate(round, updates, means)
                with self.watch("evolve"):
                    self.evolve(round)
        self.pool.drop_transient()

    def evaluate_at_the_end(self, record: RoundRecord) -> None:
        """The tests of the final models that the job asks for, in addition to those of every evaluation."""
        run_final_tests(record, self.dispatcher, self.config.job, self.watch, self.next_items)

    def _record_of(
        self, schedule: Schedule, updates: list[Update], failed: Mapping[str, int], selected: int, offline: int
    ) -> RoundRecord:
        return round_record(
            self.round,
            schedule,
            [dataclasses.replace(update, item=self.work_done(update)) for update in updates],
            self.pool,
            clock_s=self.global_virtual_clock,
            selected=selected,
            offline=offline,
            failed=failed,
            learning_rate=self.learning_rate(self.round),
            download_bytes=self.download_bytes,
            upload_bytes=self.upload_bytes,
            other_work=self._other_work,
        )

    def _write_record(self, record: RoundRecord, last: bool) -> None:
        """Complete the record and write it, then a checkpoint when one is due; only then announce the round."""
        record.models = len(self.pool)
        record.cohort_sizes = {key: size for key, size in self.dispatcher.sizes.items() if key in self.pool}
        now = time.monotonic()
        record.wall_s, self._wall_from = now - self._wall_from, now
        record.server_macs = self.mac_counter.read()
        record.seconds = self.watch.read()
        record.executor_seconds = self.dispatcher.seconds()
        record.faults = self.board.faults()
        self.history.append(record)
        self.spent_macs += record.training_macs
        with self.watch("record"):
            record.digests = self.checkpoints.digests(record.round, self._components())
            self.records.round(record, self._internals, self._internal_states)
            if last or record.round % self.config.job.checkpoint_interval == 0:
                self.save_checkpoint(record.round, last)
            # only now: a driver that heard of a round counts on its checkpoint
            phase = checked_text(self.phase(record.round), "phase", self.config.job.method) or ""
            self.emit(round_event(record, self.last_round(), int(self.args.rounds), phase))

    # ---- the end of a job ----

    def _finish(self, stopped: str | None) -> dict[str, Any]:
        """Write and announce the job's results; returns the summary."""
        # only now: a checkpoint has the notices before it, and the job may be resumed for more rounds
        end = end_notice(self.history, self.records.header["floor"], self.config)
        away = offline_notice(self.population, self.eligible, self.history)
        for sentence in filter(None, (self.unfinished_notice(), away, untrained_notice(type(self), self.history), end)):
            self.notice(sentence)
        result = JobResult(
            records=self.history,
            stopped=stopped,
            lineage=checked_figures(self.lineage(), "lineage", self.config.job.method),
            results=checked_figures(self.results(), "results", self.config.job.method),
            server_bytes=self.server_bytes(),
            repeated_bytes=self.repeated_bytes(),
            personal_bytes=self.personal_bytes(),
            served_bytes=self.served_bytes(),
            privacy=self.privacy.summary() if self.privacy else None,
            refused_messages=self.refusals.counts(),
            notices=list(self.notices),
            resumed=self.resumed,
        )
        return self.records.finish(result, self.test_objective(), self.emit)

    def _reason_to_stop(self, record: RoundRecord) -> str | None:
        """Why the method, the job's budget or its privacy ends the job after this round, or None."""
        reason = checked_text(self.finished(record.round), "finished", self.config.job.method)
        reason = reason or budget_spent(self.config.job, self.spent_macs + record.training_macs)
        if self.privacy is not None:
            record.privacy = self.privacy.figures()
            reason = reason or self.privacy.spent()
        return reason

    @property
    def _has_classes(self) -> bool:
        """Whether the last test of clients counts their samples by true and predicted class."""
        return why_without_classes({"data_set": self.args.data_set}) is None
