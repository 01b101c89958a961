"""What is checked before a job starts, in one process for all jobs of a sweep: ``fedscale driver check``, and every
sweep before its first job. A job that is resumed is checked for the data of its run.

The check does what each job's aggregator does before its first round (entry/job_check.py); the driver itself does
without torch.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import JobConfig, load_config, to_argv
from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError, listed
from fedscale_ext.data.initial_weights_file import names_path
from fedscale_ext.driver import preparation, runs
from fedscale_ext.driver.processes import Exit, Interrupt, Processes, ProcessEvent
from fedscale_ext.driver.progress import counted
from fedscale_ext.driver.screen import Screen
from fedscale_ext.driver.setup_commands import plain_commands
from fedscale_ext.driver.sweeps import sweep_plan
from fedscale_ext.util.package import PACKAGE

_MODULE = "fedscale_ext.entry.job_check"
_NAME = "check"  # of the process
_LATER = "data, devices and models are checked when the job starts"
_JOINING = f"the data are on machines that join: {_LATER}"
_SETUP = f"setup_commands may bring what is missing: {_LATER}"
#: keys that name files or folders which a setup command may bring, and what they may say instead
_FILES = ("data_dir", "data_map_file", "device_conf_file", "device_avail_file", "public_dir", "initial_weights")
_NO_FILE = RESAMPLED
_NAMED = 4  # jobs that a sentence names


@dataclass(frozen=True)
class Verdict:
    """Result of the check of a job: ``fault`` is None where it can start.

    ``facts`` are titles with words, empty where data and models were not checked. ``notices`` are sentences about the
    job. ``digest`` is that of its data, None where these were not opened.
    """

    fault: str | None
    facts: Sequence[tuple[str, str]] = ()
    notices: Sequence[str] = ()
    digest: str | None = None


class _Display(Screen):
    """Shows in a terminal which job is checked; elsewhere nothing."""

    def __init__(self, out: Console, err: Console, jobs: int):
        super().__init__(out, err, per_second=4)
        self._jobs, self._begun = jobs, 0
        self._name = self._doing = ""

    def begin(self, name: str) -> None:
        """The check has come to a job."""
        self._begun, self._name, self._doing = self._begun + 1, name, ""

    def progress(self, what: str) -> None:
        """It does something that may take long."""
        self._doing = f": {what}"

    def picture(self) -> Text:
        """How far it is."""
        return Text(f"checking {self._name} ({self._begun} of {counted(self._jobs, 'job')}){self._doing} ...")


def check_jobs(
    configs: Sequence[JobConfig], out: Console, err: Console, resumed: sweep_plan.Resumed | None = None
) -> dict[str, Verdict]:
    """A verdict for each job by its name. KeyboardInterrupt when the check is interrupted.

    Jobs that are ``resumed`` must have the data of their runs; of those that have finished nothing else is checked. A
    job that an entry outside this package runs is not checked, which its notices tell.
    """
    resumed = resumed or sweep_plan.Resumed()
    finished = resumed.finished_names
    orders = [_order(config, resumed.runs.get(name), name in finished) for config, name in _named(configs)]
    events = _events([order for order in orders if order["prepare"] or order["digest"] is not None], out, err)
    return {name: _verdict(config, events.get(name), name in finished) for config, name in _named(configs)}


def refuse_changed_data(config: JobConfig, run: Path, display: Screen) -> None:
    """Refuse to resume a ``run`` whose data differ from the job's data on this machine.

    A run without a digest passes: the aggregator compares the data with those of the checkpoint.
    """
    order = _order(config, run, True)
    if order["digest"] is None:
        return
    name = config.fedscale.job_name
    event = _events([order], display.out, display.err)[name]
    if event["event"] == "refused":
        raise UserError(f"job {name}: {event['message']}")


def _named(configs: Sequence[JobConfig]) -> list[tuple[JobConfig, str]]:
    return [(config, config.fedscale.job_name) for config in configs]


def _order(config: JobConfig, run: Path | None, finished: bool) -> dict[str, Any]:
    """What the process of the check is to do for a job, which resumes ``run`` if that is not None."""
    gpu = max((index for _, index in executor_slots(config)), default=0)
    argv = to_argv(config, cuda_device=f"cuda:{gpu}")
    here = not _awaits_setup(config) and not _awaits_joining(config)
    comparable = here and _reads_with_this_package(config)
    return {
        "job": config.fedscale.job_name,
        "argv": argv,
        "data": here,
        "digest": runs.data_digest(run) if run is not None and comparable else None,
        "prepare": not finished and _outside(config) is None,
    }


def _reads_with_this_package(config: JobConfig) -> bool:
    """Whether the executor is this package's: another one may read data its own way, with other digests."""
    return config.entry_paths()[1].is_relative_to(PACKAGE)


def _outside(config: JobConfig) -> str | None:
    """A notice for a job that an entry outside this package runs: what it does cannot be known; None for others."""
    entry = config.entry_paths()[0]
    if entry.is_relative_to(PACKAGE):
        return None
    return f"aggregator_entry {entry.name} is not of this package: {_LATER}"


def _verdict(config: JobConfig, event: Mapping[str, Any] | None, finished: bool) -> Verdict:
    """The verdict on a job from the event of its check; None for one that was not checked."""
    if event is not None and event["event"] == "refused":
        return Verdict(event["message"])
    if finished:
        return Verdict(None)
    outside = _outside(config)
    notices = [] if outside is None else [outside]
    if event is None or outside is not None:
        return Verdict(None, notices=notices)
    facts = [(title, words) for title, words in event["facts"]]
    digest = event.get("digest") if _reads_with_this_package(config) else None
    missing = _JOINING if _awaits_joining(config) else _SETUP
    return Verdict(None, facts, [*notices, *event["notices"], *([] if facts else [missing])], digest)


def _awaits_setup(config: JobConfig) -> bool:
    """Whether a file or folder that the job reads is missing, and a setup command may bring it."""
    plain, _ = plain_commands(config.cluster.setup_commands or ())
    settings = {**vars(config.fedscale), **config.job.model_dump()}
    files = [str(settings[key]) for key in _FILES if settings[key] not in (None, _NO_FILE)]
    return bool(plain) and not all(Path(file).expanduser().exists() for file in files if names_path(file))


def _awaits_joining(config: JobConfig) -> bool:
    """Whether all executors of a job join, and only their machines have its data."""
    return not executor_slots(config) and not Path(config.fedscale.data_dir).expanduser().is_dir()


def _events(orders: Sequence[Mapping[str, Any]], out: Console, err: Console) -> dict[str, dict[str, Any]]:
    """The last event of each job that the process of the check gave: ``checked`` or ``refused``."""
    if not orders:
        return {}
    events: dict[str, dict[str, Any]] = {}
    display = _Display(out, err, len(orders))
    with TemporaryDirectory(prefix="fedscale-check-") as folder, open(os.devnull, "w", encoding="utf-8") as log:
        path = Path(folder) / "jobs.json"
        path.write_text(json.dumps(orders, default=str), encoding="utf-8")
        processes = Processes(log)
        with preparation.interrupts_into(processes.inbox):
            try:
                with display:
                    processes.start(_NAME, [sys.executable, "-m", _MODULE, str(path)], preparation.environment())
                    while True:
                        message = processes.next(None)
                        if isinstance(message, Interrupt):
                            raise KeyboardInterrupt
                        if isinstance(message, Exit):
                            break
                        if isinstance(message, ProcessEvent):
                            _take(message.event, events, display)
            finally:
                processes.stop()
        if len(events) < len(orders):
            last = " ".join(list(processes.tails[_NAME])[-1:])
            missing = next(order["job"] for order in orders if order["job"] not in events)
            raise RuntimeError(f"the check {message.how} at job {missing}{f': {last}' if last else ''}")
    return events


def _take(event: dict[str, Any], events: dict[str, dict[str, Any]], display: _Display) -> None:
    kind = event["event"]
    if kind == "checking":
        display.begin(event["job"])
    elif kind == "progress":
        display.progress(event["what"])
    elif kind in ("checked", "refused"):
        events[event["job"]] = event
    display.refresh()


def refuse_faults(verdicts: Mapping[str, Verdict], resume: bool) -> None:
    """Raise a UserError for the first job of a sweep that cannot start or be resumed; it counts the others."""
    faults = {name: verdict.fault for name, verdict in verdicts.items() if verdict.fault is not None}
    if faults:
        name, fault = next(iter(faults.items()))
        others = f"; {counted(len(faults) - 1, 'other job')} cannot start either"
        if not resume:  # that command compares no data with those of earlier runs
            others += ", as `fedscale driver check` tells"
        raise UserError(f"job {name} of the sweep: {fault}{others if len(faults) > 1 else ''}")


def check(
    conf: str, overrides: Sequence[str], out: Console, err: Console, *, seeds: str | None, grid: Sequence[str]
) -> int:
    """Check the job of a configuration, or all jobs of a sweep, and print what they are; the exit code: 0 or 2."""
    configs, verdicts, repeats = [], {}, None
    if seeds is None and not grid:
        config = load_config(conf, overrides)
        preparation.check_start(config)
        configs.append(preparation.hide_key(config))
    else:
        plan = sweep_plan.read_plan(conf, overrides, seeds, grid)
        configs, repeats = plan.configs, plan.repeats
        verdicts = {name: Verdict(fault) for name, fault in plan.faults.items()}
    verdicts |= check_jobs(configs, out, err)
    for name, verdict in verdicts.items():
        _print(name, verdict, out)
    faults: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        if verdict.fault is not None:
            faults.setdefault(verdict.fault, []).append(name)
    for fault, names in faults.items():
        jobs = f"job {names[0]}" if len(names) == 1 else f"jobs {listed(names, _NAMED)}"
        err.print(f"fedscale: {jobs}: {fault}", markup=False, highlight=False, soft_wrap=True)
    if faults:
        return 2
    for note in filter(None, (idle_keys(*configs), repeats)):
        out.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"{counted(len(verdicts), 'job')} can start", markup=False, highlight=False)
    return 0


def _print(name: str, verdict: Verdict, out: Console) -> None:
    """What a job is that can start: a line each, in a terminal folded into its width."""
    if verdict.fault is not None:
        return
    rows = [*verdict.facts, *(("note", notice) for notice in verdict.notices)]
    lines = Table.grid(padding=(0, 2, 0, 0))
    for title, words in rows:
        lines.add_row(Text(f"  {title:<12}"), Text(words))
    out.print(name, markup=False, highlight=False, soft_wrap=True)
    if out.is_terminal:
        out.print(lines)
        return
    for title, words in rows:
        out.print(f"  {title:<14}{words}", markup=False, highlight=False, soft_wrap=True)
