"""What a job says while it runs, on standard output."""

import json
import os
import subprocess
import sys

import pytest

from fedscale_ext.core.events import EVENTS_VARIABLE, print_event


class Pieces:
    """An output that remembers what each call wrote."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("value", ["1", ""])
def test_an_event_is_written_in_one_piece_where_it_is_asked_for(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unbuffered, each write is a system call, and the log shares the file: it once stood between text and line end."""
    output = Pieces()
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setenv(EVENTS_VARIABLE, value)
    print_event({"event": "waiting", "for": "2 executors"})
    assert [json.loads(piece) for piece in output.written] == [{"event": "waiting", "for": "2 executors"}] * bool(value)
    assert all(piece.endswith("\n") for piece in output.written)


def test_events_of_two_threads_do_not_mix_although_a_pipe_takes_a_long_one_in_parts() -> None:
    code = (
        "import threading\n"
        "from fedscale_ext.core.events import print_event\n"
        "def tell(text):\n"
        "    for number in range(50):\n"
        "        print_event({'event': text, 'number': number})\n"
        "threads = [threading.Thread(target=tell, args=(text,)) for text in (200_000 * 'x', 200_000 * 'y')]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
    )
    environment = {**os.environ, EVENTS_VARIABLE: "1", "PYTHONUNBUFFERED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(event["number"] for event in events) == sorted(2 * [*range(50)])
