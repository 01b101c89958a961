"""Runs a job on several machines: checks of all hosts, processes by ssh, progress, results brought here."""

import contextlib
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path, PurePosixPath
from typing import Any

from fedscale_ext.cluster import check, hosts, joining, results
from fedscale_ext.cluster.access import Access, hosts_by_process, is_here
from fedscale_ext.cluster.hosts import Hosts
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import ConfFile, JobConfig, load_config, to_argv
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs, preparation, runs
from fedscale_ext.driver.model_check import check_models
from fedscale_ext.driver.preparation import AGGREGATOR
from fedscale_ext.driver.processes import Exit, Proc, ProcessEvent
from fedscale_ext.driver.progress import Display, counted
from fedscale_ext.driver.resumption import has_finished, resume_advice, resume_keys
from fedscale_ext.driver.run import Outcome, Run
from fedscale_ext.driver.run_lock import sole_writer
from fedscale_ext.driver.setup_commands import plain_commands
from fedscale_ext.driver.supervision import Restarts
from fedscale_ext.driver.sweeps.sweep import Way
from fedscale_ext.metrics.job_folder.restarts import drop_restarts

_STOP_S = 22.0  # a submitted job is stopped within 20 s, on all of its hosts
_AT_ONCE = 16  # hosts that are asked side by side
_SLOW = "raise it, or run `fedscale dataset verify` there first, which reads the data"


def prepared(config: JobConfig) -> JobConfig:
    """Check a job as far as this machine can tell; UserError if it cannot be submitted."""
    preparation.refuse_key(config)
    jobs.check_name(config.fedscale.job_name)
    preparation.check_address(config)
    if not config.cluster.setup_commands:  # one may be what brings a method or a family of models
        check_models(config, data=False)
    Access.of(config)
    if hosts_by_process(config).keys() == {AGGREGATOR} and config.job.token_file is None:
        raise UserError(
            "worker_ips is empty and token_file is not set, so that nobody could join the job: make a token "
            "(`(umask 077; openssl rand -hex 32 > token)`) and write token_file: token, or name hosts in worker_ips"
        )
    return config


#: how the jobs of a sweep are run on other machines
SUBMITTED = Way("submit", prepared, here=False, stop_s=_STOP_S)


def submit(
    conf: str | ConfFile,
    overrides: list[str],
    display: Display,
    *,
    resume: bool,
    resume_from: int | None,
    supervise: bool,
) -> int:
    """Run the job of a configuration on the hosts that it names, to its end; arguments, exit code: driver.start's."""
    config = prepared(load_config(conf, overrides))
    name = config.fedscale.job_name
    access, host_of = Access.of(config), hosts_by_process(config)
    with jobs.claim(name), contextlib.ExitStack() as held:
        last = jobs.read(name)
        resumed = resume or resume_from is not None
        before = runs.existing(name, last) if resumed else None
        if before is not None:
            runs.check_unchanged(config, before.log_dir, files_here=False)  # the aggregator compares its own, and data
            runs.check_rounds(config, before.log_dir, before, resume_from=resume_from)
            if resume and has_finished(config, before, before.log_dir, display.notice):
                return 0
        if last:
            jobs.end_all(last.children)
        stamp = before.time_stamp if before else runs.new_stamp(config)
        log_path = before.log_path if before else str(Path(config.fedscale.log_path).absolute())
        where = {"access": asdict(access), "places": host_of, "there": _checkpoints(before, host_of)}
        job = jobs.Job(name, config.origin(), log_path, stamp, [], Proc.of("driver", os.getpid()), cluster=where)
        if before:
            job.round = before.round  # its checkpoint is there, though this run may end before its first round
        preparation.make_log_dir(job, config, resumed)
        held.enter_context(sole_writer(job.log_dir))
        if not resumed:
            drop_restarts(job.log_dir)
        plain, shell = plain_commands(config.cluster.setup_commands or ())
        if shell:
            display.notice(
                f"these setup_commands need a shell and are not run: {'; '.join(shell)}; set python to the "
                "interpreter of the environment on the hosts"
            )
        with jobs.leaving_nothing(job), jobs.open_log(name, "a" if resumed else "w") as log:
            processes = Hosts(log, access, host_of)
            restarts, keys = Restarts() if supervise else None, resume_keys(resume, resume_from)
            advice = resume_advice(conf, job.conf, overrides, ("submit",))
            code = ClusterRun(config, job, processes, display, restarts, advice, keys, held).run(plain, {})
        jobs.restore_after_refusal(job, last, code)
        return code


def _checkpoints(before: jobs.Job | None, host_of: dict[str, str]) -> str | None:
    """Where the run to resume has its checkpoints on the aggregator's host, whatever ``log_path`` says by now; None
    where that host had none of it."""
    cluster = before.cluster if before else {}
    same = cluster.get("places", {}).get(AGGREGATOR) == host_of[AGGREGATOR]
    return cluster.get("there") if same else None


def leftovers(job: jobs.Job, *, end: bool = False) -> dict[str, list[str]]:
    """Processes of a submitted job on each of its hosts, ended first with ``end``; of a silent host, why."""
    host_of: dict[str, str] = job.cluster["places"]
    access = Access(**job.cluster["access"])

    def ask(host: str) -> list[str]:
        try:
            return list(hosts.ask(access, host, do="leftovers", job=job.name, end=end)["processes"])
        except UserError as error:
            return [f"unknown: {error}"]

    every = list(dict.fromkeys(host_of.values()))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return dict(zip(every, threads.map(ask, every), strict=True))


class ClusterRun(Run):
    """A job whose processes run on several machines; none is left when one of them cannot begin."""

    processes: Hosts

    def __init__(
        self, config: JobConfig, job: jobs.Job, processes: Hosts, display: Display, restarts: Restarts | None,
        advice: str, keys: Mapping[str, Any], locks: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        """Prepare the run; ``keys`` are the aggregator's for where it begins.

        ``locks`` hold the job's folder here, until the results take its place.
        """
        super().__init__(job, processes, display, restarts, advice, idle_keys(config))
        self.config, self.record, self.keys = config, job.cluster, keys
        self.host_of = dict(processes.hosts)
        self.host = self.host_of[AGGREGATOR]  # most questions are about this one
        self.token = ""
        self.locks = locks

    # ---- before the first process ----

    def _prepare(self, setup: list[list[str]]) -> Outcome | None:
        try:
            self.token = joining.token(self.config)
            self._fix_addresses(self._check(setup))
        except UserError as error:
            return Outcome("failed", 2, str(error))
        except KeyboardInterrupt:
            return Outcome("stopped", 130)
        return None

    def _check(self, setup: list[list[str]]) -> dict[str, check.Report]:
        """Run the setup commands and the check on each host; UserError for the first that fails."""
        host_of = self.host_of
        training = [host for name, host in host_of.items() if name != AGGREGATOR]
        names = {f"check ({host})": host for host in dict.fromkeys(host_of.values())}
        self.job.children = self.processes.greet(names)
        self._write_record()
        self.display.notice(
            f"checking {counted(len(names), 'host')} for {counted(len(training), 'executor')}; a host that has not "
            "seen the data yet reads it now"
            if training
            else f"checking the aggregator's host, {self.host}"
        )
        for name, host in names.items():
            roles = {"aggregates": host == self.host, "trains": host in training}
            order = {"do": "check", "setup": setup, "argv": self._checked_argv(host), **roles}
            self.processes.order(name, **self._common(host), **order)
        timeout_s = self.config.job.register_timeout_s
        late = f"has not finished its check within register_timeout_s={timeout_s:g} s: {_SLOW}"
        answers = self.processes.answers(names, check.EVENT, timeout_s, late, ended=True)
        reports = {names[name]: check.Report.read(event) for name, event in answers.items()}
        check.compare(reports, host_of, self.config)
        note = check.pythons(reports)
        if note:
            self.display.notice(f"hosts have different Pythons, on which results do not depend: {note}")
        return reports

    def _checked_argv(self, host: str) -> list[str]:
        there = self.record["there"] if host == self.host else None
        log_path = {"log_path": there} if there else {}
        return to_argv(self.config, **log_path, time_stamp=self.job.time_stamp)

    def _common(self, host: str) -> dict[str, Any]:
        """What orders for a host have in common."""
        return {"job": self.job.name, "host": host, "work_dir": self.config.cluster.work_dir or os.getcwd()}

    def _fix_addresses(self, reports: dict[str, check.Report]) -> None:
        """Where the job listens and writes, and with it every process's arguments."""
        config, its = self.config, reports[self.host]
        if self.keys and its.newest and its.newest != self.job.time_stamp:
            newest = replace(self.job, time_stamp=its.newest)  # a refusal leaves the job and its folder as they are
            preparation.make_log_dir(newest, config, True)
            self.locks.enter_context(sole_writer(newest.log_dir))  # the earlier folder stays locked until the end
            self.job.time_stamp = its.newest
        there = self.record["there"] = self._log_path(its.folder)
        shared = {"log_path": there, "time_stamp": self.job.time_stamp, "ps_port": its.port}
        # `driver status` prints them, in whatever folder it is typed; the token is this machine's
        shared |= jobs.join_files(config.job, its.folder)
        if config.job.token_file is not None:
            shared["token_file"] = str(Path(config.job.token_file).expanduser().absolute())
        self.job.argv = joining.aggregator_arguments(config, **shared, **self.keys)
        address = joining.address(config.fedscale.ps_ip, its.port or 0)
        executors = ([address, *options] for options in joining.options_by_executor(config))
        self.ranks = dict(zip(self.host_of, [self.job.argv, *executors], strict=True))

    def _log_path(self, folder: str) -> str:
        """``log_path`` on the aggregator's host, absolute from the ``folder`` in which it works; ~ and variables are
        that host's own. A resumed job's stays where its checkpoints are."""
        if self.record["there"]:
            return str(self.record["there"])
        log_path = str(self.config.given.get("log_path", self.config.fedscale.log_path))
        if log_path[:1] in "~$":
            return log_path
        return str(PurePosixPath(folder) / log_path)

    # ---- while it runs ----

    def _launch(self, name: str, argv: list[str], restarted: bool) -> Proc:
        """Start a process where it belongs: on its host."""
        order: dict[str, Any] = {"do": "run", "name": name, "token": self.token, "argv": argv}
        if name == AGGREGATOR:
            keys = self.config.cluster
            order |= {
                "entry": [keys.exp_path, keys.aggregator_entry],
                "log_dir": self._there() if restarted else None,
                "ready": self.ready,
            }
        process = self.processes.begin(name)
        self.processes.order(name, **self._common(self.host_of[name]), **order)
        return process

    def _on_exit(self, gone: Exit) -> None:
        if gone.code == 2 and gone.name != AGGREGATOR and not self.ready and self.processes.tails[gone.name]:
            reason = self.processes.tails[gone.name][-1].removeprefix("fedscale: ")
            self._fail(gone.name, Outcome("failed", 2, f"{self.host_of[gone.name]}: {reason}"))
        else:
            super()._on_exit(gone)

    def _note_error(self, message: ProcessEvent) -> None:
        if message.event.get("exit_code") == 2:
            where = f"{self.host_of[message.name]}: {message.event.get('message')}"
            message = replace(message, event={**message.event, "message": where})
        super()._note_error(message)

    def _replace_or_fail(self, gone: Exit, outcome: Outcome) -> None:
        if not self.ready and self.restarts is None:  # a partial start is none
            outcome = replace(outcome, reason=f"{outcome.reason} before the job began; all hosts were cleared")
            self._fail(gone.name, outcome)
        else:
            super()._replace_or_fail(gone, outcome)

    def _can_restart(self, gone: Exit) -> bool:
        """Nothing is started on a host that is lost: the job goes on without it."""
        return gone.why is None

    def _may_be_joined(self) -> bool:
        """Whether others have the job's token."""
        return self.config.job.token_file is not None

    def _note_restart(self, name: str, reason: str, after: int) -> None:
        """Here, for ``driver status``, and in the job's folder on the aggregator's host, where that is another one."""
        super()._note_restart(name, reason, after)
        if not self._shared():
            order = {"log_dir": self._there(), "process": name, "reason": reason, "after_round": after}
            with contextlib.suppress(UserError):  # a host that is gone: the job will say it
                hosts.ask(self.processes.access, self.host, do="note", **order)

    def _display_name(self, name: str) -> str:
        return f"{name} on {self.host_of[name]}"

    # ---- results ----

    def _there(self) -> str:
        return str(PurePosixPath(self.record["there"]) / "logs" / self.job.name / self.job.time_stamp)

    def _has_checkpoint(self) -> bool:
        return self.job.has_written_checkpoint(self.config.job.checkpoint_interval)

    def _conclude(self, outcome: Outcome) -> None:
        if outcome.status == "finished" and self.summary:
            files, folder = self.summary["files"], self._fetched()
            there = str(files["log_dir"])  # absolute, also where log_path begins with that host's ~
            self.summary["files"] = {what: str(path).replace(there, folder, 1) for what, path in files.items()}
        super()._conclude(outcome)

    def _shared(self) -> bool:
        """Whether the job's folder on the aggregator's host is the one here, by whatever file system."""
        return is_here(self.host) or (self.job.log_dir / "checkpoints").is_dir()

    def _fetched(self) -> str:
        """Where the results are, after they were brought here from the aggregator's host."""
        there, here = self._there(), self.job.log_dir
        if self._shared():
            return str(here)
        try:
            drop_restarts(here)  # they come with the results
            self.locks.close()  # its lock file would keep the folder
            with contextlib.suppress(OSError):
                here.rmdir()  # that was all that it held
            with contextlib.suppress(FileNotFoundError):  # of the run that this one went on from
                here.rename(here.with_name(f"{here.name}.until-{time.time_ns()}"))
            results.fetch(self.processes.access, self.host, there, here)
        except (UserError, OSError) as error:
            self.display.notice(
                f"the results stay in {there} on {self.host}, because they could not be brought here: {error}"
            )
            return f"{self.host}:{there}"
        return str(here)
