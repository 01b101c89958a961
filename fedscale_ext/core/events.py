"""What a job says while it runs: JSON lines for the driver that started it, or a function's argument.

The key ``event`` names the kind of each; the other fields are::

    event     | emitted by                    | fields                             | read by
    ----------|-------------------------------|------------------------------------|------------------------------------
    waiting   | server/grpc_server.py         | for                                | driver/progress.py
    executors | server/attendance.py          | executors, lost, replacement_s     | driver/run.py, driver/jobs.py
    ready     | server/announcements.py       | clients, executors, data,          | driver/run.py, driver/progress.py,
              |                               | population, model, rounds, log_dir | api/running.py
    round     | server/announcements.py       | round, rounds, asked, phase,       | driver/run.py, driver/jobs.py,
              |                               | participants, models, assignments, | driver/progress.py, api/replay.py
              |                               | loss, accuracy, epsilon,           |
              |                               | virtual_clock_s, wall_s            |
    progress  | methods/moss, methods/fedoras | round, what, passing               | driver/progress.py
              | entry/job_check.py            | what                               | driver/job_checks.py
    transform | methods/fedtrans              | round, parent, child, what         | driver/progress.py
    notice    | server/method_base,           | message                            | driver/run.py, driver/jobs.py,
              | entry/in_process.py,          |                                    | driver/progress.py,
              | cluster/ray_executors.py      |                                    | entry/job_check.py
    trained   | server/aggregator.py          |                                    | driver/run.py
    summary   | server/records.py             | summary, table, tables, files      | driver/run.py, driver/jobs.py,
              |                               |                                    | driver/progress.py
    error     | entry/launch.py,              | message, exit_code, final          | driver/run.py, cluster/hosts.py,
              | cluster/remote.py             |                                    | cluster/submit.py
    checking  | entry/job_check.py            | job                                | driver/job_checks.py
    checked   | entry/job_check.py            | job, facts, notices, digest        | driver/job_checks.py
              | cluster/remote.py             | folder, those of cluster/check.py  | cluster/hosts.py, cluster/submit.py
    refused   | entry/job_check.py            | job, message                       | driver/job_checks.py
    hello     | cluster/remote.py             | version, sources                   | cluster/hosts.py
    left      | cluster/remote.py             | processes                          | cluster/submit.py

Processes print them by :func:`print_event`. Readers pass over kinds that they do not know.
"""

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

Emit = Callable[[dict[str, Any]], None]
EVENTS_VARIABLE = "FEDSCALE_EXT_EVENTS"
_LOCK = threading.Lock()  # a pipe takes a line of more than 64 KiB in parts, and another thread's could come between


def print_event(event: dict[str, Any]) -> None:
    """Print an event as one JSON line on standard output, if a driver requested events."""
    if os.environ.get(EVENTS_VARIABLE):
        line = f"{json.dumps(event, default=str)}\n"
        with _LOCK:
            sys.stdout.write(line)  # print would write the end of the line apart, and the log's could come between
            sys.stdout.flush()


def ignore_event(event: dict[str, Any]) -> None:
    """Do nothing: for callers who want no progress."""
