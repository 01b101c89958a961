"""What the driver remembers of each job: one folder with job.json and output.log, found by the job's name."""

import json
import os
import platform
import re
import shlex
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.driver import run_lock
from fedscale_ext.driver.processes import Proc, signal_group
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.locks import lock

if TYPE_CHECKING:
    from fedscale_ext.config.keys import JobKeys

_STOP_DRIVER_S = 8.0  # a driver stops its processes within 5 s
_STOP_CLUSTER_S = 20.0  # and those of other machines within 11 s
_STOP_CHILD_S = 3.0
_LOOK_S = 0.05
_LISTED = 5  # most jobs that a message names
# options of `fedscale executor join` that name files, and a job's keys of the same files
TLS_FILES = {"--tls-ca": "tls_ca", "--tls-cert": "tls_executor_cert", "--tls-key": "tls_executor_key"}
_JOIN_FILES = {"--token-file": "token_file", **TLS_FILES}
_OF_A_START = {"aggregator", "executor", run_lock.NAME}  # in the folder of a run that has not begun
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_KEPT_NOTICES = 100  # of a job's record; output.log has all


class DamagedRecord(UserError):
    """The record of a job or a sweep is there, and cannot be read."""


@dataclass
class Job:
    """The record in job.json. Times are seconds since 1970; ``status`` is running, finished, failed or stopped."""

    name: str
    conf: str
    log_path: str
    time_stamp: str
    argv: list[str]
    driver: Proc
    host: str = field(default_factory=platform.node)
    status: str = "running"
    started: float = field(default_factory=time.time)
    ended: float | None = None
    children: list[Proc] = field(default_factory=list)
    round: dict[str, Any] | None = None  # the last round's event
    accuracy: float | None = None  # of the last round that was tested
    reason: str | None = None  # why it failed
    stopped: str | None = None  # why it finished before its last round
    notices: list[str] = field(default_factory=list)  # different sentences that it gave, in their order
    executors: list[dict[str, Any]] = field(default_factory=list)  # who is present, as server/attendance.py has it
    lost: list[dict[str, Any]] = field(default_factory=list)  # executors that are not, though they did not leave
    alone: dict[str, float] | None = None  # since when nobody is present, and the most seconds that the job waits
    cluster: dict[str, Any] = field(default_factory=dict)  # where a job that was submitted runs
    in_process: bool = False  # run by fedscale_ext.run: its driver is a caller's process, which is not ours to end

    @property
    def log_dir(self) -> Path:
        """Folder of FedScale's logs and this package's results of the job."""
        return Path(self.log_path) / "logs" / self.name / self.time_stamp

    def note_event(self, event: dict[str, Any]) -> bool:
        """Take over what the aggregator says of a round, its summary or a notice; whether the record changed.

        :meth:`note_executors` takes over its other events.
        """
        kind = event["event"]
        if kind == "round":
            self.round = event
            if event.get("accuracy") is not None:
                self.accuracy = event["accuracy"]
        elif kind == "summary":
            self._note_summary(event["summary"])
        elif kind == "notice":
            return self._add_notice(str(event.get("message")))
        return kind in ("round", "summary")

    def _note_summary(self, summary: dict[str, Any]) -> None:
        """Take over from the job's summary why it stopped early, and what no round said.

        A job that is resumed after its last round says nothing of rounds.
        """
        self.stopped = summary.get("stopped")
        if self.round is None:
            self.round = {"round": summary["rounds"], "rounds": summary["rounds"]}
            self.accuracy = summary["accuracy"]["mean"] if summary["accuracy"] else None

    def note_executors(self, event: dict[str, Any]) -> list[str]:
        """Take over who is there; sentences on what changed since the last event.

        One is for each executor that joined, or is gone again, and one says that the job waits for another.
        """
        before = {line["executor"]: line for line in self.executors if line["joined"]}
        self.executors, self.lost = event["executors"], event.get("lost", [])
        after = {line["executor"]: line for line in self.executors if line["joined"]}
        joined = [f"executor {name} joined from {after[name]['host']}" for name in after if name not in before]
        gone = [f"executor {name}, which had joined, is gone" for name in before if name not in after]
        return joined + gone + self._note_alone(event.get("replacement_s"))

    def _note_alone(self, most_s: float | None) -> list[str]:
        """Note since when nobody is present. The sentence that the aggregator waits ``most_s`` comes once."""
        if self.executors or most_s is None:
            self.alone = None
        elif self.alone is None:
            self.alone = {"since": time.time(), "most_s": most_s}
            return [f"no executor is left: the job waits up to {most_s:g} s (replacement_s) for another one"]
        return []

    def _add_notice(self, sentence: str) -> bool:
        new = sentence not in self.notices and len(self.notices) < _KEPT_NOTICES
        if new:
            self.notices.append(sentence)
        return new

    def join_command(self) -> str | None:
        """Return the command by which a process joins the job; None for a job that names no file of its token."""
        keys = dict(word[2:].split("=", 1) for word in self.argv if word.startswith("--") and "=" in word)
        if not {"ps_ip", "ps_port", "token_file"} <= keys.keys():
            return None
        host = f"[{keys['ps_ip']}]" if ":" in keys["ps_ip"] else keys["ps_ip"]
        words = ["fedscale", "executor", "join", f"{host}:{keys['ps_port']}"]
        for option, key in _JOIN_FILES.items():
            words += [option, keys[key]] if key in keys else []
        return shlex.join(words)

    def complete(self, rounds: int) -> bool:
        """Tell whether the job finished with exactly ``rounds`` rounds, or was asked for them and stopped early."""
        if self.status != "finished" or self.round is None:
            return False
        if rounds == self.round["round"]:
            return True
        return self.stopped is not None and rounds == self.round.get("asked", self.round["rounds"])

    def has_written_checkpoint(self, interval: int) -> bool:
        """Tell whether the rounds that were heard of had a checkpoint, one in ``interval`` rounds; of a job whose files
        are on another machine."""
        return self.round is not None and self.round["round"] >= interval

    def state(self) -> str:
        """``status``, but a job whose driver is gone without a word has failed."""
        if self.status == "running" and self.host == platform.node() and not self.driver.running():
            return "failed"
        return self.status


def join_files(job: "JobKeys", folder: str | Path) -> dict[str, str]:
    """Return the keys of the files that :meth:`Job.join_command` names, with paths that hold in any folder.

    ``folder`` is where relative ones begin.
    """
    paths = {key: getattr(job, key) for key in _JOIN_FILES.values()}
    return {key: str(Path(folder, path)) if path[0] != "~" else path for key, path in paths.items() if path}


def state_dir() -> Path:
    """Folder of everything that the command remembers; made if missing."""
    state_home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    path = Path(os.environ.get("FEDSCALE_EXT_STATE") or f"{state_home}/fedscale_ext").expanduser().absolute()
    return _ensure_folder(path)


def folder(name: str) -> Path:
    """Folder of the job ``name``; made if missing."""
    check_name(name)
    return _ensure_folder(state_dir() / "jobs" / name)


def check_name(name: str) -> None:
    """Check that a job can have this name; UserError otherwise."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"job_name {name!r:.80} must be a file name of 1 to 100 letters, digits, '_', '-' and '.', and begin with "
            "a letter, a digit or '_'"
        )


def _ensure_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the state directory {path} cannot be made: {error.strerror}; set FEDSCALE_EXT_STATE to a folder of yours"
        ) from None
    return path


def names() -> list[str]:
    """Names of all jobs that were ever started here."""
    return sorted(path.parent.name for path in state_dir().glob("jobs/*/job.json"))


def read(name: str) -> Job | None:
    """The record of a job, or None if there is none."""
    if not _NAME.fullmatch(name):
        return None
    path = state_dir() / "jobs" / name / "job.json"  # folder() would create one for no job
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data["driver"] = Proc(**data["driver"])
        data["children"] = [Proc(**child) for child in data["children"]]
        data["cluster"] = data.get("cluster") or {}  # earlier releases wrote null
        return Job(**data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, TypeError, KeyError):
        raise DamagedRecord(f"the record {path} of job {name} is damaged; delete that folder") from None


def read_intact(name: str) -> Job | None:
    """The record of a job; None if there is none, or a damaged one, of which ``driver status`` tells."""
    try:
        return read(name)
    except UserError:
        return None


def find(name: str) -> Job:
    """The record of a job that must exist."""
    job = read(name)
    if job is None:
        known = names()
        listed = f"; known jobs: {', '.join(known[:_LISTED])}" if known else "; no job was started here yet"
        if len(known) > _LISTED:
            listed += f" and {len(known) - _LISTED} that `fedscale driver status` lists"
        raise UserError(f"there is no job {name!r}{did_you_mean(name, known) or listed}")
    return job


def output_log(name: str) -> Path:
    """File with the output of the processes of the job's last run."""
    return folder(name) / "output.log"


@contextmanager
def open_log(name: str, mode: str) -> Iterator[IO[str]]:
    """The file of :func:`output_log`, open; what a full disk did not take is lost without an error. A new one (mode
    "w") leaves the last run's aside for
    :func:`restore_after_refusal`."""
    path = output_log(name)
    _aside(name).unlink(missing_ok=True)
    if mode == "w" and path.is_file():
        os.replace(path, _aside(name))
    log = path.open(mode, encoding="utf-8")
    try:
        yield log
    finally:
        with suppress(OSError):
            log.close()


def _aside(name: str) -> Path:
    return folder(name) / "output.log.before"


def restore_after_refusal(job: Job, last: Job | None, code: int) -> None:
    """Restore the ``last`` record and output where bad input ended a run before its first round; delete its log
    folder."""
    if code == 2 and job.round is None:
        _remove_unbegun(job.log_dir)
        if last is not None:
            write(last)
            if _aside(job.name).is_file():
                os.replace(_aside(job.name), output_log(job.name))
    _aside(job.name).unlink(missing_ok=True)


@contextmanager
def leaving_nothing(job: Job) -> Iterator[None]:
    """If a refusal or a full disk ends the block, remove the log folder of a run that has not begun."""
    try:
        yield
    except (UserError, OSError):
        _remove_unbegun(job.log_dir)
        raise


def _remove_unbegun(log_dir: Path) -> None:
    """Remove a log folder that holds nothing but what FedScale logged of the start, and the job's own if it is empty
    then."""
    if log_dir.is_dir() and {path.name for path in log_dir.iterdir()} <= _OF_A_START:
        with suppress(OSError):
            shutil.rmtree(log_dir)
            log_dir.parent.rmdir()


def write(job: Job) -> None:
    """Put the record in place in one step, so that a reader never sees half of it."""
    write_atomic(folder(job.name) / "job.json", json.dumps(asdict(job), indent=1))


@contextmanager
def claim(name: str) -> Iterator[None]:
    """Hold the name for the life of a driver; the system lets go of it even when the driver is killed.

    UserError where another process holds it.
    """
    try:
        claimed = lock(folder(name) / "lock")
    except BlockingIOError:
        raise UserError(
            f"job {name} is running; stop it with `fedscale driver stop {name}`, or set another job_name"
        ) from None
    with claimed:
        yield


def stop(job: Job) -> bool:
    """Stop a job's driver and what is left of its processes, and wait until they are gone.

    Returns False if nothing was running. Only processes whose number and create time match the
    record are signalled.
    """
    if job.host != platform.node():
        raise UserError(f"job {job.name} was started on {job.host}; stop it there")
    if job.in_process:
        if job.state() == "running":
            raise UserError(f"job {job.name} runs in the Python process {job.driver.pid}; interrupt it there")
        return False
    stopped = stop_driver(job.driver, _STOP_CLUSTER_S if job.cluster else _STOP_DRIVER_S)
    left = end_all((read(job.name) or job).children)
    return stopped or left


def stop_driver(driver: Proc, wait_s: float) -> bool:
    """Have the driver of a job or a sweep end by itself, and kill it after ``wait_s``; False if it does not run."""
    process = driver.running()
    if process is None:
        return False
    process.terminate()
    if left_after(wait_s, [driver]):
        process.kill()
    return True


def forget(name: str) -> Path:
    """Delete the record and the output of a job that does not run; the folder of its results, which stay."""
    log_dir = find(name).log_dir
    with claim(name):
        for file in (folder(name) / "job.json", output_log(name), _aside(name)):
            file.unlink(missing_ok=True)
    return log_dir


def end_all(processes: list[Proc]) -> bool:
    """End those of the processes that run, each with its group; whether there were any."""
    children = left_after(0, processes)
    left = children
    for number in (signal.SIGTERM, signal.SIGKILL):
        for child in left:
            signal_group(child.pid, number)
        left = left_after(_STOP_CHILD_S, left)
    return bool(children)


def left_after(seconds: float, processes: list[Proc]) -> list[Proc]:
    """Wait for processes to end, at most ``seconds``, and return those that still run.

    They are not children of this process, and one that its parent has not heard of counts as gone: the system offers no
    wait for that.
    """
    deadline = time.monotonic() + seconds
    while (left := [process for process in processes if process.running()]) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    return left
