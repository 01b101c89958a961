"""What a job says while it runs, on standard output."""

import json
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
