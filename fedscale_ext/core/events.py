"""What a job says while it runs: JSON lines for the driver that started it, or a function's argument."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Emit = Callable[[dict[str, Any]], None]
EVENTS_VARIABLE = "FEDSCALE_EXT_EVENTS"


def print_event(event: dict[str, Any]) -> None:
    """Print an event as one JSON line on standard output, if a driver requested events."""
    if os.environ.get(EVENTS_VARIABLE):
        # in one piece: print writes the end of the line apart, and a line of the log could come between
        sys.stdout.write(f"{json.dumps(event, default=str)}\n")
        sys.stdout.flush()


def ignore_event(event: dict[str, Any]) -> None:
    """Do nothing: for callers who want no progress."""
