"""The running service: who is heard, and what strangers learn."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import grpc
import pytest
from aggregator_service import SERVICE, configuration, connection, registration, serving, stranger
from fedscale.cloud.channels import job_api_pb2

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.transport import endpoint
from fedscale_ext.transport.refused_messages import Refusals
from fedscale_ext.transport.signed_grpc import SignatureCheck
from fedscale_ext.transport.signing import Gate, Signer
from fedscale_ext.util.token import new_token

METHOD = SERVICE + "CLIENT_REGISTER"


def raw_call(config: JobConfig, body: bytes, *metadata: tuple[str, bytes], method: str = METHOD) -> Any:
    address = endpoint.address(config)
    with grpc.insecure_channel(address) as channel:
        return channel.unary_unary(method).with_call(body, metadata=metadata, timeout=10.0)


def refusal(config: JobConfig, body: bytes, *metadata: tuple[str, bytes], method: str = METHOD) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as raised:
        raw_call(config, body, *metadata, method=method)
    assert not raised.value.trailing_metadata()
    return raised.value.code(), raised.value.details()


def test_executors_with_the_token_are_heard(service: Any, config: JobConfig) -> None:
    with connection(config, 1) as stub:
        stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
    assert service.infos.keys() == {"1"}
    assert service.refusals.counts() == {}


def test_strangers_of_every_kind_hear_the_same(service: Any, config: JobConfig) -> None:
    signer, other = endpoint.signer(config), Signer(bytes(32), config.fedscale.job_name)
    body = registration("1").SerializeToString()
    import time

    now = int(1000 * time.time())

    def stamp(by: Signer = signer, executor: int = 1, body: bytes = body, at: int = now) -> tuple[str, bytes]:
        return "fsx-stamp-bin", by.stamp(METHOD, executor, body, at)[0]

    good = stamp()
    heard = {
        refusal(config, body),
        refusal(config, body, ("fsx-stamp-bin", b"junk")),
        refusal(config, body, stamp(other)),
        refusal(config, body, stamp(executor=0)),
        refusal(config, body, stamp(executor=2)),
        refusal(config, body, stamp(at=now - 130_000)),
        refusal(config, body + b"x", stamp()),
        refusal(config, b"junk", stamp(body=b"junk")),
        refusal(config, body, good, good),
        refusal(config, body, method=SERVICE + "NO_SUCH_METHOD"),
        refusal(config, b"x" * 5_000_000),
    }
    assert heard == {(grpc.StatusCode.UNAUTHENTICATED, "refused")}
    assert not service.infos
    raw_call(config, body, good)
    assert refusal(config, body, good) == (grpc.StatusCode.UNAUTHENTICATED, "refused")
    counts = service.refusals.counts()
    assert counts == {
        "its body is not the signed one": 1,
        "its time is off": 1,
        "not a message of the service": 1,
        "not signed": 4,
        "replayed": 1,
        "signed by another executor than it names": 1,
        "signed in another version": 1,
        "signed with another token": 2,
    }


def test_an_executor_with_another_token_is_told_what_to_look_at(service: Any, config: JobConfig) -> None:
    new_token(Path(config.job.token_file or ""))  # the aggregator has read the one before
    with connection(config) as stub, pytest.raises(ConnectionError, match="token, number, clock or version"):
        stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)


def test_an_aggregator_that_does_not_know_the_token_is_not_believed(config: JobConfig) -> None:
    from concurrent import futures

    from fedscale.cloud.channels import job_api_pb2_grpc

    class Impostor(job_api_pb2_grpc.JobServiceServicer):
        def CLIENT_PING(self, request: Any, context: Any) -> Any:
            return job_api_pb2.ServerResponse(event="SHUT_DOWN")

    server = grpc.server(futures.ThreadPoolExecutor(1))
    job_api_pb2_grpc.add_JobServiceServicer_to_server(Impostor(), server)
    server.add_insecure_port(endpoint.address(config))
    server.start()
    try:
        with connection(config) as stub, pytest.raises(ConnectionError, match="not its aggregator"):
            stub.CLIENT_PING(job_api_pb2.PingRequest(executor_id="1"), wait_for_ready=True, timeout=10.0)
    finally:
        server.stop(None).wait()


def test_a_message_above_the_limit_is_named(job_file: Path) -> None:
    config = configuration(job_file, "max_message_mb=1")
    with serving(config), connection(config) as stub:
        large = job_api_pb2.CompleteRequest(executor_id="1", data_result=bytes(2 << 20))
        with pytest.raises(ConnectionError, match="max_message_mb=1"):
            stub.CLIENT_EXECUTE_COMPLETION(large, wait_for_ready=True, timeout=10.0)


def test_without_a_token_messages_are_still_numbered_and_whole(job_file: Path) -> None:
    config = configuration(job_file, "token_file=null")
    with serving(config) as service:
        with connection(config) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        with stranger(config) as stub, pytest.raises(grpc.RpcError):
            stub.CLIENT_REGISTER(registration("2"), wait_for_ready=True, timeout=10.0)
        assert service.infos.keys() == {"1"}


def test_a_flood_of_strangers_takes_few_threads(config: JobConfig) -> None:
    gate = Gate(endpoint.signer(config), endpoint.joining_signer(config), 120.0)
    check, unsigned = SignatureCheck(gate, Refusals()), SimpleNamespace(method=METHOD, invocation_metadata=())
    handlers = [check.intercept_service(lambda _: None, unsigned) for _ in range(40)]
    waiting = [handler for handler in handlers if handler is not None]
    assert len(waiting) == 16 and handlers[:16] == waiting
    context = Mock()
    waiting[0].stream_unary(iter(()), context)
    context.abort.assert_called_once_with(grpc.StatusCode.UNAUTHENTICATED, "refused")
    assert check.intercept_service(lambda _: None, unsigned) is not None
    assert check.intercept_service(lambda _: None, unsigned) is None
