"""A cluster's run with links that only pretend: what happens while processes start, and what is told of hosts."""

from collections import deque
from queue import SimpleQueue

import pytest
from rich.console import Console

from fedscale_ext.cluster.access import Access
from fedscale_ext.cluster.links import LOST, Links
from fedscale_ext.cluster.submit import ClusterRun
from fedscale_ext.config.job_config import make_config
from fedscale_ext.driver import jobs, preparation
from fedscale_ext.driver.preparation import AGGREGATOR
from fedscale_ext.driver.processes import Exit, Proc, Said
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.supervision import Restarts

PLACES = {AGGREGATOR: "a", "executor 1": "b", "executor 2": "c"}


class Pretended:
    """Links whose messages are written down beforehand."""

    def __init__(self, *messages: object) -> None:
        self.inbox: SimpleQueue = SimpleQueue()
        self.tails = {name: deque(["last words"]) for name in PLACES}
        self.hosts, self.messages, self.started = dict(PLACES), deque(messages), []
        self.stopped, self.notes = False, []

    def note(self, host, **restart):
        self.notes.append((host, restart))

    def start(self, name, argv, **order):
        self.started.append((name, order))

    def running(self):
        return [] if self.stopped or not self.messages else list(PLACES)

    def next(self, deadline):
        return self.messages.popleft()

    def stop(self):
        self.stopped = True


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path))

    def of(*messages, restarts=None):
        config = make_config({"ps_ip": "a", "worker_ips": ["b:[1]", "c:[1]"]}, {"job_name": "j", "use_cuda": False})
        job = jobs.Job("j", "conf.yml", str(tmp_path), "now", [], Proc("driver", 0, 0.0),
                       cluster={"access": {}, "places": PLACES, "there": "/there"})  # fmt: skip
        links = Pretended(*messages)
        run = ClusterRun(config, job, links, Display(Console(), Console(stderr=True)), restarts)
        monkeypatch.setattr(run, "_prepare", lambda setup: None)
        code = run.run([], preparation.arguments(config))
        return code, capsys.readouterr().err, links

    return of


def test_a_partial_start_is_none(run):
    code, err, links = run(Said(AGGREGATOR, {"event": "waiting", "for": "executors"}), Exit("executor 2", 3))
    assert code == 1 and links.stopped
    assert "last words" in err
    assert "executor 2 on c ended with exit code 3 before the job began; all hosts were cleared" in " ".join(
        err.split()
    )


def test_a_host_that_is_lost_later_is_told(run):
    lost = Exit("executor 2", LOST, "was lost with its host (Connection reset)")
    code, err, _ = run(Said(AGGREGATOR, {"event": "ready"}), lost, Exit("executor 1", 0), Exit(AGGREGATOR, 1))
    assert code == 1
    assert "note: executor 2 on c was lost with its host (Connection reset); the job goes on without it" in " ".join(
        err.split()
    )


def test_nothing_is_started_again_on_a_host_that_is_lost(run):
    lost = Exit("executor 2", LOST, "was lost with its host (Connection reset)")
    _, err, links = run(Said(AGGREGATOR, {"event": "ready"}), lost, Exit(AGGREGATOR, -9), None, restarts=Restarts())
    notices = " ".join(err.split())
    assert "note: executor 2 on c was lost with its host (Connection reset); the job goes on without it" in notices
    assert "note: aggregator on a was ended by SIGKILL after round 0; it is started again" in notices
    # the aggregator's restart calls all others; where it is written down: on its host, too
    assert links.started[3][0] == AGGREGATOR
    assert links.notes == [("a", {"log_dir": "/there/logs/j/now", "process": AGGREGATOR, "after_round": 0,
                                  "reason": "aggregator on a was ended by SIGKILL"})]  # fmt: skip


def test_bad_input_is_told_with_its_host(run):
    error = {"event": "error", "message": "use_cuda is True but torch finds no GPU", "exit_code": 2}
    code, err, _ = run(Said("executor 1", error), Exit("executor 1", 2))
    assert (code, " ".join(err.split())) == (2, "fedscale: b: use_cuda is True but torch finds no GPU")


def test_every_process_is_started_on_its_host_by_its_entry(run):
    _, _, links = run(Exit(AGGREGATOR, 1))
    assert [name for name, _ in links.started] == list(PLACES)
    entries = ["entry/aggregator.py" if name == AGGREGATOR else "entry/executor.py" for name, _ in links.started]
    assert [order["entry"] for _, order in links.started] == entries
    assert all(order["log_dir"] is None for _, order in links.started)


class _Agents:
    """What links hear of their agents."""

    def __init__(self, *messages):
        self.messages, self.tails, self.written = deque(messages), {"b": deque(["Connection reset"])}, []

    def next(self, deadline):
        return self.messages.popleft()

    def running(self):
        return ["b"]

    def send(self, host, line):
        pass

    def write(self, name, line):
        self.written.append((name, line))


def test_a_hosts_words_are_those_of_its_own_processes_alone(tmp_path):
    with (tmp_path / "log").open("w") as log:
        links = Links(log, Access("python"), dict(PLACES))
    event = {"event": "round", "round": 1}
    links._agents = _Agents(
        Said("b", {"event": "said", "of": AGGREGATOR, "said": event}),  # not b's
        Said("b", {"event": "line", "of": "executor 1", "text": "hello"}),
        Said("b", {"event": "said", "of": "executor 1", "said": event}),
        Exit("b", 255),
    )
    links.start("executor 1", [])
    assert links.next(None) == Said("executor 1", event)
    assert links._agents.written == [("b executor 1", "hello")]
    assert links.next(None) == Exit("executor 1", LOST, "was lost with its host (Connection reset)")
    assert links.running() == []
