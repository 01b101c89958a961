"""What a job says while it runs: JSON lines for the driver that started it, or a function's argument."""

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
