"""An executor's calls while its aggregator is away, restarted, or refuses it."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2

from fedscale_ext.config.job_config import JobConfig, load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.transport import executor_link as link
from fedscale_ext.transport.executor_link import ALIVE, Link

REPLY = job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)
END = job_api_pb2.ServerResponse(event=commons.SHUT_DOWN)


class Status(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "in so many words"


class Stub:
    """Answers calls by ``answer(name, request)``, which may return a status to raise."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        self._answer = answer
        self.calls: list[str] = []
        self.timeouts: list[float] = []

    def __getattr__(self, name: str) -> Any:
        def call(request: Any, timeout: float) -> Any:
            self.timeouts.append(timeout)
            if getattr(request, "event", "") == ALIVE:
                said = self._answer(ALIVE, request)
            else:
                self.calls.append(name)
                said = self._answer(name, request)
            if isinstance(said, grpc.StatusCode):
                raise Status(said)
            return said

        return call


@pytest.fixture
def config(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> JobConfig:
    monkeypatch.setattr(link, "_PAUSE_S", 0.001)
    return load_config(job_file, ["this_rank=1", "reconnect_s=0.05", "register_timeout_s=0.05"])


def linked(config: JobConfig, stub: Stub) -> Link:
    both = {"stub": stub, "life_stub": stub}
    return Link(SimpleNamespace(**both, reconnect=lambda: stub.calls.append("reconnect")), config, b"info")


def reduce_upload(link: Link, event: str, result: bytes) -> Any:
    return link.complete(link.result(event, result))


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN"])
def test_a_call_whose_connection_broke_is_sent_again(config: JobConfig, code: str) -> None:
    answers = [grpc.StatusCode[code], grpc.StatusCode[code], REPLY]
    stub = Stub(lambda name, request: answers.pop(0))
    assert reduce_upload(linked(config, stub), "event", b"result") == REPLY
    assert stub.calls == ["CLIENT_EXECUTE_COMPLETION"] * 3


def test_a_message_and_its_answer_have_as_long_as_a_slow_line_takes(config: JobConfig) -> None:
    stub = Stub(lambda name, request: REPLY)
    reduce_upload(linked(config, stub), "event", bytes(10_000_000))
    linked(config, stub)._register(1.0)
    largest_s = config.job.max_message_mb * 1024 * 1024 * 8 / 1e6
    assert stub.timeouts == [pytest.approx(120 + 80 + largest_s, rel=1e-4), pytest.approx(10, rel=1e-2)]


def test_who_is_not_known_registers_and_sends_its_result_again(config: JobConfig) -> None:
    known: list[bytes] = []

    def answer(name: str, request: Any) -> Any:
        if name == "CLIENT_REGISTER":
            known.append(request.executor_info)
        return REPLY if known else grpc.StatusCode.FAILED_PRECONDITION

    stub = Stub(answer)
    assert reduce_upload(linked(config, stub), "event", b"result") == REPLY
    assert stub.calls == ["CLIENT_EXECUTE_COMPLETION", "CLIENT_REGISTER", "CLIENT_EXECUTE_COMPLETION"]
    assert known == [b"info"]


@pytest.mark.parametrize("code", ["UNAVAILABLE", "FAILED_PRECONDITION"])
def test_trying_again_has_an_end_and_names_what_was_awaited(config: JobConfig, code: str) -> None:
    stub = Stub(lambda name, request: REPLY if name == "CLIENT_REGISTER" else grpc.StatusCode[code])
    awaited = r"no answer from an aggregator at 127.0.0.1:\d+ within 0.05 s: its job .* 1 Mbit/s \(in so many words\)"
    with pytest.raises(ConnectionError, match=awaited):
        linked(config, stub).ping()


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "ABORTED", "UNAUTHENTICATED"])
def test_a_refusal_is_final(config: JobConfig, code: str) -> None:
    stub = Stub(lambda name, request: grpc.StatusCode[code])
    for call in (linked(config, stub).ping, linked(config, stub).open):
        with pytest.raises(ConnectionError, match="refused this executor: in so many words"):
            call()
    assert len(stub.calls) == 2


def test_who_starts_with_other_code_is_refused_and_who_had_begun_before_may_start_again(
    config: JobConfig,
) -> None:
    with pytest.raises(UserError, match="refused this executor: in so many words"):
        linked(config, Stub(lambda name, request: link.FINAL)).open()
    unknown = grpc.StatusCode.FAILED_PRECONDITION
    stub = Stub(lambda name, request: link.FINAL if name == "CLIENT_REGISTER" else unknown)
    with pytest.raises(ConnectionError, match="refused this executor: in so many words"):
        linked(config, stub).ping()


def test_a_channel_that_was_replaced_meanwhile_is_not_asked_again(config: JobConfig) -> None:
    there = SimpleNamespace(stub=None)

    class Closed:
        def CLIENT_PING(self, request: Any, **_: Any) -> Any:
            there.stub = Stub(lambda name, request: REPLY)
            raise ValueError("Cannot invoke RPC on closed channel!")

    there.stub = Closed()
    assert Link(there, config, b"info").ping() == REPLY


def test_signs_of_life_register_anew_leave_a_silent_connection_and_end_with_the_job(config: JobConfig) -> None:
    answers = [REPLY, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE,
               grpc.StatusCode.DEADLINE_EXCEEDED, REPLY, END]  # fmt: skip
    done = threading.Event()

    def answer(name: str, request: Any) -> Any:
        if name != ALIVE:
            return REPLY
        if len(answers) == 1:
            done.set()
        return answers.pop(0)

    stub = Stub(answer)
    link_ = linked(config, stub)
    link_.open()
    assert done.wait(5.0)
    link_._life.join(5.0)
    assert not link_._life.is_alive()
    assert stub.calls == ["CLIENT_REGISTER", "CLIENT_REGISTER", "reconnect"]


@pytest.mark.parametrize("refusal", [ConnectionError("its clock differs"), ValueError("closed channel")])
def test_a_refused_sign_of_life_is_not_the_last_one(
    config: JobConfig, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    monkeypatch.setattr(link, "_REFUSED_SHARE", 0.0001)
    answers = [REPLY, refusal, REPLY, grpc.StatusCode.FAILED_PRECONDITION, refusal, REPLY, END]

    def answer(name: str, request: Any) -> Any:
        said = answers.pop(0) if name == ALIVE or len(answers) < 7 else REPLY
        if isinstance(said, Exception):
            raise said
        return said

    link_ = linked(config, Stub(answer))
    link_.open()
    link_._life.join(5.0)
    assert not link_._life.is_alive() and not answers


def test_a_refused_registration_is_not_tried_again_at_once(config: JobConfig) -> None:
    pauses = []

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return len(pauses) > 2

    def answer(name: str, request: Any) -> Any:
        if name == ALIVE:
            return grpc.StatusCode.FAILED_PRECONDITION
        return link.FINAL if pauses else REPLY

    link_ = linked(config, Stub(answer))
    link_._closed = Closed()
    link_.open()
    link_._life.join(5.0)
    assert pauses[:2] == [link._PAUSE_S, link._REFUSED_SHARE * config.job.lease_s]


def test_of_two_processes_the_later_one_has_the_greater_name(config: JobConfig) -> None:
    stub = Stub(lambda name, request: REPLY)
    first, second = (linked(config, stub)._identity["client_id"] for _ in range(2))
    assert first < second
