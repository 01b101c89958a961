"""``fedscale_ext.run(…, processes=True)`` with fake processes: how a job that does not finish reaches the caller."""

import signal
import threading

import pytest

import fedscale_ext
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.progress import Display

from .conftest import processes_of, wait_until


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("die", "aggregator ended with exit code 1"),
        ("bad input", "num_participants 9 is above the 4 clients; lower it"),
    ],
)
def test_a_failure_is_its_sentence(state, write_conf, monkeypatch, capfd, what, sentence):
    monkeypatch.setenv("FAKE_AGGREGATOR", what)
    with pytest.raises(UserError, match=sentence):
        fedscale_ext.run(write_conf(), processes=True, progress=False)
    assert capfd.readouterr() == ("", "")
    wait_until(lambda: not processes_of(state))


def test_an_interrupt_ends_its_processes(state, write_conf, monkeypatch, capfd):
    monkeypatch.setenv("FAKE_AGGREGATOR", "wait")
    shown = Display.event

    def interrupt_after_round_three(self, event):
        shown(self, event)
        if event["event"] == "transform":
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Display, "event", interrupt_after_round_three)
    with pytest.raises(KeyboardInterrupt):
        fedscale_ext.run(write_conf(), processes=True)
    wait_until(lambda: not processes_of(state))
    assert "job fake was stopped; it has no checkpoint yet" in capfd.readouterr().err


def test_another_thread_is_told_that_it_cannot(state, write_conf):
    messages = []

    def run() -> None:
        try:
            fedscale_ext.run(write_conf(), processes=True, progress=False)
        except UserError as error:
            messages.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert messages and "needs the main thread" in messages[0]
