"""What ``fedscale driver status`` tells of jobs: a row each, or all facts of one."""

import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fedscale_ext.core.errors import UserError

if TYPE_CHECKING:
    from fedscale_ext.driver.jobs import Job


def facts(record: "Job") -> dict[str, str]:
    """What is known of a job, by title; empty where nothing is."""
    from fedscale_ext.driver import jobs
    from fedscale_ext.metrics.job_folder.restarts import count_restarts

    record = _with_last_round(record)
    known = {
        "job": record.name,
        "status": record.state(),
        "reason": record.reason or ("its driver is gone" if record.state() != record.status else ""),
        "round": _progress(record),
        "accuracy": _accuracy(record),
        "started": when(record.started),
        "ended": when(record.ended),
        "configuration": record.conf,
        "results": str(record.log_dir),
        "output": str(jobs.output_log(record.name)),
        "restarted": ", ".join(f"{name} {times}x" for name, times in count_restarts(record.log_dir).items()),
        "processes": ", ".join(f"{child.name} {child.pid}" for child in record.children if child.running()),
    }
    if "slurm" in record.cluster:
        from fedscale_ext.cluster import slurm_queue

        known |= {
            "status": slurm_queue.state(record),
            "slurm": record.cluster["slurm"],
            "output": record.cluster["folder"],
        }
    elif record.in_process:
        known |= {"output": "", "processes": f"Python {record.driver.pid}" if record.state() == "running" else ""}
    elif "places" not in record.cluster:
        known |= record.cluster
    else:
        from fedscale_ext.cluster.submit import leftovers

        known["processes"] = ""
        known |= {host: ", ".join(running) or "nothing runs" for host, running in leftovers(record).items()}
    if record.state() == "running" and not record.in_process:
        known |= _executors(record)
    return known


def _executors(job: "Job") -> dict[str, str]:
    """Who works for a running job, what each does, how fast; who is lost; and the command with which others join."""
    facts = {}
    if job.alone is not None:
        alone_s, most_s = max(0.0, time.time() - job.alone["since"]), job.alone["most_s"]
        facts["waits"] = f"for {alone_s:.1f} s for an executor, as none is left; up to {most_s:g} s (replacement_s)"
    for line in sorted([*job.executors, *job.lost], key=lambda line: int(line["executor"])):
        words = f"{line['host']}, {line['device']}{', joined' if line['joined'] else ''}: "
        if line.get("lost_at"):
            words += f"lost {max(0.0, time.time() - line['lost_at']):.1f} s ago"
        elif line["unit"]:
            since = max(0.0, time.time() - line["since"])
            words += f"{line['kind']} of {line['clients']} clients in round {line['round']} for {since:.1f} s"
        else:
            words += "waits"
        if line["units_done"]:
            rate = line["clients_done"] / max(line["busy_s"], 1e-3)
            words += f"; {line['units_done']:,} units in {line['busy_s']:.1f} s, {rate:.3g} clients/s"
        facts[f"executor {line['executor']}"] = words
    if (command := job.join_command()) is not None:
        facts["more join by"] = command
    return facts


def row(name: str) -> list[str]:
    """A job's name, status, round, accuracy, and when it began and ended."""
    from fedscale_ext.driver import jobs

    try:
        job = _with_last_round(jobs.find(name))
    except UserError:
        return [name, "damaged", "", "", "", ""]
    state = job.state()
    if state == "queued":
        from fedscale_ext.cluster import slurm_queue

        with suppress(UserError):  # of machines that share the records, only some ask Slurm
            state = slurm_queue.state(job)
    return [name, state, _progress(job), _accuracy(job), when(job.started), when(job.ended)]


def row_in_sweep(name: str, run: Path | None) -> list[str]:
    """A job of a sweep whose folder there is ``run``, None before it begins: its record may be of another run."""
    from fedscale_ext.driver import jobs
    from fedscale_ext.metrics.job_folder.file_names import HEADER

    try:
        record = jobs.read(name)
    except UserError:
        return row(name)
    if run is not None and record is not None and record.log_dir == run:
        return row(name)
    if run is None:
        status = "not begun"
    elif not (run / HEADER).is_file():
        status = "no results"
    else:
        status = "forgotten" if record is None else "replaced"
    return [name, status, "", "", "", ""]


def _with_last_round(job: "Job") -> "Job":
    """The record of a job with its last round, of which a driver that was killed may not have heard."""
    if job.state() == job.status:
        return job
    from fedscale_ext.report.job.loading import load_job

    try:
        trained = load_job(job.log_dir)
    except UserError:  # it has no round, or is damaged, which others tell
        return job
    accuracy = (trained.summary["accuracy"] or {}).get("mean")
    return replace(job, round={"round": trained.rounds_done, "rounds": trained.rounds_asked}, accuracy=accuracy)


def _progress(job: "Job") -> str:
    return f"{job.round['round']}/{job.round['rounds']}" if job.round else ""


def _accuracy(job: "Job") -> str:
    return "" if job.accuracy is None else f"{100 * job.accuracy:.1f} %"


def when(seconds: float | None) -> str:
    """A point in time as local date and time; empty for none."""
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}" if seconds else ""
