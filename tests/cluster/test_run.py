"""A cluster's run with processes that only pretend: what happens while they start, and what is told of hosts."""

import os
import shlex
import sys
from collections import deque
from contextlib import ExitStack
from queue import SimpleQueue

import pytest
from rich.console import Console

from fedscale_ext.cluster import hosts
from fedscale_ext.cluster.access import Access
from fedscale_ext.cluster.check import Report
from fedscale_ext.cluster.hosts import LOST, Hosts
from fedscale_ext.cluster.remote import facts
from fedscale_ext.cluster.submit import ClusterRun, prepared, submit
from fedscale_ext.config.job_config import load_config, make_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import jobs
from fedscale_ext.driver.preparation import AGGREGATOR, check_start
from fedscale_ext.driver.processes import Exit, Proc, ProcessEvent
from fedscale_ext.driver.progress import Display
from fedscale_ext.driver.supervision import Restarts

PLACES = {AGGREGATOR: "a", "executor 1": "b", "executor 2": "c"}


class Pretended:
    """Processes on hosts whose messages are written down beforehand."""

    def __init__(self, *messages: object) -> None:
        self.inbox: SimpleQueue = SimpleQueue()
        self.tails = {name: deque(["last words"]) for name in PLACES}
        self.hosts, self.messages, self.started, self.orders = dict(PLACES), deque(messages), [], {}
        self.stopped, self.access, self.ended = False, Access("python"), set()

    def begin(self, name):
        self.started.append(name)
        return Proc(name, 0, 0.0)

    def order(self, to, /, **order):
        self.orders[to] = order

    def running(self):
        return [] if self.stopped or not self.messages else [name for name in PLACES if name not in self.ended]

    def next(self, deadline):
        message = self.messages.popleft()
        if isinstance(message, Exit) and message.name != AGGREGATOR:
            self.ended.add(message.name)
        return message

    def stop(self):
        self.stopped = True


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path))

    def of(*messages, restarts=None, **keys):
        flat = {"job_name": "j", "use_cuda": False, **keys}
        config = make_config({"ps_ip": "a", "worker_ips": ["b:[1]", "c:[1]"]}, flat)
        job = jobs.Job("j", "conf.yml", str(tmp_path), "now", [], Proc("driver", 0, 0.0),
                       cluster={"access": {}, "places": PLACES, "there": "/there"})  # fmt: skip
        processes = Pretended(*messages)
        run = ClusterRun(
            config, job, processes, Display(Console(), Console(stderr=True)), restarts, "", {}, ExitStack()
        )
        monkeypatch.setattr(
            run, "_prepare", lambda setup: run._fix_addresses({"a": Report("3", "2", "2", "c", 0, port=7000)})
        )
        monkeypatch.setattr(
            hosts, "ask", lambda access, host, **order: processes.orders.setdefault("note", (host, order))
        )
        code = run.run([], {})
        return code, capsys.readouterr().err, processes

    return of


def test_a_partial_start_is_none(run):
    code, err, processes = run(
        ProcessEvent(AGGREGATOR, {"event": "waiting", "for": "executors"}), Exit("executor 2", 3)
    )
    assert code == 1 and processes.stopped
    assert "last words" in err
    assert "executor 2 on c ended with exit code 3 before the job began; all hosts were cleared" in " ".join(
        err.split()
    )


def test_a_host_that_is_lost_later_is_told(run):
    lost = Exit("executor 2", LOST, "was lost with its host (Connection reset)")
    code, err, _ = run(ProcessEvent(AGGREGATOR, {"event": "ready"}), lost, Exit("executor 1", 0), Exit(AGGREGATOR, 1))
    assert code == 1
    assert "note: executor 2 on c was lost with its host (Connection reset); the job goes on without it" in " ".join(
        err.split()
    )


def joined(*numbers):
    lines = [{"executor": number, "host": "there", "joined": True} for number in numbers]
    return ProcessEvent(AGGREGATOR, {"event": "executors", "executors": lines, "replacement_s": 90.0})


BOTH_DIE = (ProcessEvent(AGGREGATOR, {"event": "ready"}), joined("1", "2"), Exit("executor 1", -9),
            Exit("executor 2", -9))  # fmt: skip


def test_a_job_that_nobody_else_can_join_ends_with_its_last_executor(run):
    code, err, processes = run(*BOTH_DIE, None)
    said = " ".join(err.split())
    assert code == 1 and processes.stopped and "fedscale: executor 2 on c was ended by SIGKILL; all output is" in said
    assert "executor 1 on b was ended by SIGKILL; the job goes on without it" in said


def test_a_job_that_others_may_join_says_that_it_waits_for_them_or_goes_on_with_them(run):
    waits = "no executor is left: the job waits up to 90 s (replacement_s) for another one"
    _, err, _ = run(*BOTH_DIE, joined(), joined(), Exit(AGGREGATOR, 1), None, token_file="token")
    said = " ".join(err.split())
    assert "executor 2 on c was ended by SIGKILL; it was the last one" in said and said.count(waits) == 1
    begin, _, *deaths = BOTH_DIE
    _, err, _ = run(begin, joined("1", "2", "3"), *deaths, Exit(AGGREGATOR, 1), None, token_file="token")
    assert "executor 2 on c was ended by SIGKILL; the job goes on without it" in " ".join(err.split())


def test_nothing_is_started_again_on_a_host_that_is_lost(run):
    lost = Exit("executor 2", LOST, "was lost with its host (Connection reset)")
    _, err, processes = run(
        ProcessEvent(AGGREGATOR, {"event": "ready"}), lost, Exit(AGGREGATOR, -9), None, restarts=Restarts()
    )
    notices = " ".join(err.split())
    assert "note: executor 2 on c was lost with its host (Connection reset); the job goes on without it" in notices
    assert "note: aggregator on a was ended by SIGKILL after round 0; it is started again" in notices
    # the aggregator's restart calls all others; where it is written down: on its host, too
    assert processes.started[3] == AGGREGATOR
    assert processes.orders[AGGREGATOR]["log_dir"] == "/there/logs/j/now"
    assert processes.orders["note"] == ("a", {
        "do": "note", "log_dir": "/there/logs/j/now", "process": AGGREGATOR, "after_round": 0,
        "reason": "aggregator on a was ended by SIGKILL"})  # fmt: skip


def test_an_executor_that_refuses_its_input_after_a_restart_is_not_started_again(run):
    dies, refuses = Exit("executor 2", -9), Exit("executor 2", 2)
    _, err, processes = run(
        ProcessEvent(AGGREGATOR, {"event": "ready"}), dies, None, refuses, None, None, restarts=Restarts()
    )
    assert processes.started.count("executor 2") == 2
    assert "executor 2 on c ended with exit code 2; the job goes on without it" in " ".join(err.split())


def test_bad_input_is_told_with_its_host(run):
    error = {"event": "error", "message": "use_cuda is True but torch finds no GPU", "exit_code": 2}
    code, err, _ = run(ProcessEvent(AGGREGATOR, error), Exit(AGGREGATOR, 2))
    assert (code, " ".join(err.split())) == (2, "fedscale: a: use_cuda is True but torch finds no GPU")


def test_an_executor_that_cannot_join_says_why_with_its_host(run):
    code, err, processes = run(Exit("executor 1", 2))
    assert (code, " ".join(err.split())) == (2, "fedscale: b: last words")
    assert processes.stopped


def test_every_process_is_started_on_its_host_and_executors_join(run):
    _, _, processes = run(Exit(AGGREGATOR, 1))
    assert processes.started == list(PLACES)
    aggregator, *executors = (processes.orders[name] for name in PLACES)
    assert aggregator["entry"] == ["fedscale_ext", "entry/aggregator.py"] and aggregator["log_dir"] is None
    assert aggregator["host"] == "a" and "--num_executors=0" in aggregator["argv"]
    assert {"--ps_port=7000", "--log_path=/there", "--this_rank=0"} <= set(aggregator["argv"])
    for number, (host, order) in enumerate(zip("bc", executors, strict=True), start=1):
        assert order["host"] == host and "entry" not in order
        assert order["argv"] == ["a:7000", "--wait", "120", "--number", str(number)]


@pytest.fixture
def processes(tmp_path):
    with (tmp_path / "log").open("w") as log:
        hosts = Hosts(log, Access("python"), dict(PLACES))
        yield hosts
        hosts.stop()


def test_a_connection_that_breaks_is_a_host_that_is_lost(processes):
    processes._running["executor 1"] = processes._running["executor 2"] = None
    processes.tails = {"executor 1": deque(["Connection reset"]), "executor 2": deque()}
    for message in (Exit("executor 1", 255), Exit("executor 2", 137)):
        processes.inbox.put(message)
    assert processes.next(None) == Exit("executor 1", LOST, "was lost with its host (Connection reset)")
    assert processes.next(None) == Exit("executor 2", -9)  # its host is there


def test_a_stop_waits_until_the_processes_on_their_hosts_have_ended(processes):
    read = [sys.executable, "-c", "import sys; sys.stdin.read(); print('ended', flush=True); sys.exit(1)"]
    process = processes.start("executor 1", read, dict(os.environ))
    assert process.running()
    processes.stop()
    assert list(processes.tails["executor 1"]) == ["ended"] and not process.running()


def test_each_line_of_output_comes_after_its_host(processes, tmp_path):
    processes.write("executor 1", "hello")
    assert (tmp_path / "log").read_text() == "b executor 1 | hello\n"


def test_of_many_hosts_a_few_are_greeted_at_a_time(processes, monkeypatch):
    names = {f"check ({number})": str(number) for number in range(20)}
    waiting = []

    def begin(name):
        waiting.append(name)
        assert len(waiting) <= 8
        processes._running[name] = None
        processes.inbox.put(ProcessEvent(name, {"event": "hello", **facts()}))

    monkeypatch.setattr(processes, "begin", begin)
    answers = processes.answers

    def heard(group, *words):
        waiting.clear()
        return answers(group, *words)

    monkeypatch.setattr(processes, "answers", heard)
    assert len(processes.greet(names)) == 20
    processes._running.clear()


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ([ProcessEvent("executor 1", {"event": "error", "message": "no"}), Exit("executor 1", 2)], "b: no"),
        ([ProcessEvent("executor 1", {"event": "error", "message": "setup command make ended with exit code 3"}),
          Exit("executor 1", 2)], "b: setup command make ended with exit code 3: last words"),
        ([Exit("executor 1", 1)], "b: its check ended with exit code 1: last words"),
        ([Exit("executor 1", 0)], "b: its check ended with exit code 0: last words"),
        ([], "b is late"),
    ],
)  # fmt: skip
def test_a_host_that_does_not_answer_is_named(processes, messages, sentence):
    processes._running["executor 1"] = None
    processes.tails = {"executor 1": deque(["last words"])}
    for message in messages:
        processes.inbox.put(message)
    with pytest.raises(UserError) as error:
        processes.answers(["executor 1"], "checked", 0.0, "is late", ended=True)
    assert str(error.value) == sentence
    processes._running.clear()


def test_a_job_that_nobody_could_join_is_refused(tmp_path):
    prepared(make_config({"worker_ips": []}, {"job_name": "j", "use_cuda": False, "token_file": str(tmp_path)}))
    for keys in ({}, {"tls_ca": "ca.pem"}):  # with certificates, the token is needed all the same
        with pytest.raises(UserError, match="worker_ips is empty and token_file is not set, so that nobody"):
            prepared(make_config({"worker_ips": []}, {"job_name": "j", "use_cuda": False, **keys}))


def test_the_command_that_continues_a_job_has_its_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path))
    advice = []
    monkeypatch.setattr(ClusterRun, "run", lambda self, setup, ranks: advice.append(self.advice) or 0)
    overrides = ["worker_ips=['localhost:[1]']", f"log_path={tmp_path}"]
    submit("quickstart", overrides, Display(Console(), Console()), resume=False, resume_from=None, supervise=False)
    words = [load_config("quickstart", overrides).origin(), "--set", overrides[0], "--set", overrides[1], "--resume"]
    assert advice == [f"the job with `fedscale driver submit {shlex.join(words)}`"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_of_no_machine_is_refused(host, tmp_path):
    config = make_config({"ps_ip": host}, {"job_name": "j", "use_cuda": False})
    for check in (prepared, check_start):
        with pytest.raises(UserError, match=f"ps_ip {host} names no machine: set it to the address at which executors"):
            check(config)


def test_a_job_without_executors_says_how_to_join_it_from_any_folder(run, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    files = {"token_file": "token", "tls_ca": "ca.pem", "tls_executor_cert": "/c.pem", "tls_executor_key": "~/k.pem"}
    keys = {"job_name": "j", "use_cuda": False, **files}
    job = jobs.Job("j", "conf.yml", str(tmp_path), "now", [], Proc("driver", 0, 0.0), cluster={"there": None})
    processes = Pretended()
    processes.hosts = {AGGREGATOR: "a"}
    display = Display(Console(width=400), Console(stderr=True, width=400))
    alone = ClusterRun(
        make_config({"ps_ip": "a", "worker_ips": []}, keys), job, processes, display, None, "", {}, ExitStack()
    )
    alone._fix_addresses({"a": Report.read({**facts(), "folder": "/work", "port": 7, "time": 0.0, "received_at": 0.0})})
    alone._train()
    assert f"--token_file={tmp_path / 'token'}" in alone.job.argv
    command = f"fedscale executor join a:7 --token-file {tmp_path / 'token'} --tls-ca /work/ca.pem --tls-cert /c.pem"
    command += " --tls-key '~/k.pem'"
    assert f"the job has no executors; any process joins by: {command}" in capsys.readouterr().err
