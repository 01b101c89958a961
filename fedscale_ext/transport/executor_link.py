"""An executor's connection to the aggregator: calls that survive broken connections and the aggregator's restarts."""

import logging
import secrets
import threading
import time
from contextlib import suppress
from typing import Any

import grpc
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2, job_api_pb2_grpc
from fedscale.cloud.channels.channel_context import ClientConnections
from overrides import overrides

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.transport import endpoint
from fedscale_ext.transport.signed_grpc import SignedChannel
from fedscale_ext.transport.signing import Signer

ALIVE = "alive"  # event of a call that shows that the executor lives, whatever it is doing
LEAVE = "leave"  # event of the last call of an executor that leaves before the job ends
_LIFE_SHARE = 2 / 3  # of a lease: longest wait for the answer to such a call
_REFUSED_SHARE = 1 / 6  # of a lease: pause after one that was refused
_REPLY_S = 120.0  # the aggregator answers within ten seconds, with work or without; messages travel longer
_CONNECT_S = 10.0  # of one attempt to register, beside the message's way
_SLOWEST_MBIT = 1.0  # per second: of the slowest line on which messages arrive
_RETRY_MS = 100, 500  # first and largest pause between two attempts; gRPC's defaults are 1 s and 2 min
_PAUSE_S = 0.2  # between two attempts
_LEAVE_S = 2.0  # longest wait for the answer to the last call
FINAL = grpc.StatusCode.PERMISSION_DENIED  # refuses a process, however often it asks
# statuses of calls whose connection or aggregator broke
PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}


class _RefusedForGood(ConnectionError):
    """Raised for a refusal with FINAL."""


class Connection(ClientConnections):
    """FedScale's connection with signed calls, which notices within half a second that the aggregator listens.

    Args:
        config: The job's configuration, which names the aggregator and this executor's number.
        signer: Signs the calls; by default, as an executor of the job.

    """

    life_stub: Any  # on a connection of its own: a large message would hold up signs of life for long
    _life_channel: Any

    def __init__(self, config: JobConfig, signer: Signer | None = None) -> None:
        super().__init__(config.fedscale.ps_ip, config.fedscale.ps_port)
        self._config = config
        self._signer = signer or endpoint.signer(config)
        self._credentials, self._options = endpoint.channel_security(config)

    @overrides
    def connect_to_server(self) -> None:
        """Open the channels; a first call with ``wait_for_ready`` waits for the aggregator."""
        self.channel, self.stub = self._opened(endpoint.keepalive(self._config))
        self._life_channel, self.life_stub = self._opened([])

    def _opened(self, more: list[tuple[str, int]]) -> tuple[Any, Any]:
        """Open a channel with further options; the channel and its stub."""
        first, maximum = _RETRY_MS
        options = [
            *endpoint.limits(self._config),
            ("grpc.initial_reconnect_backoff_ms", first),
            ("grpc.max_reconnect_backoff_ms", maximum),
            ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection
            *more,
        ]
        address = endpoint.address(self._config)
        if self._credentials is None:
            channel = grpc.insecure_channel(address, options)
        else:
            channel = grpc.secure_channel(address, self._credentials, [*options, *self._options])
        rank, max_message_mb = self._config.fedscale.this_rank, self._config.job.max_message_mb
        return channel, job_api_pb2_grpc.JobServiceStub(SignedChannel(channel, self._signer, rank, max_message_mb))

    def reconnect(self) -> None:
        """Replace silent connections: their open calls end as cancelled, later ones use new ones."""
        silent = (self.channel, self._life_channel)
        self.connect_to_server()
        for channel in silent:
            channel.close()

    @overrides
    def close_sever_connection(self) -> None:
        """Close the channels; the name is FedScale's."""
        super().close_sever_connection()
        self._life_channel.close()


class Link:
    """FedScale's calls by one process that serves as an executor.

    A call without an answer is sent again for ``reconnect_s`` seconds. An aggregator that does not know this process,
    because it was restarted, gets the registration first. Sending again is safe: the aggregator drops a message that it
    has processed, and sends a unit again that this process holds.

    Args:
        communicator: The connection, which holds the stubs.
        config: The job's configuration.
        info: The registration message.

    """

    def __init__(self, communicator: Any, config: JobConfig, info: bytes) -> None:
        self._communicator, self._info, self._job = communicator, info, config.job
        self._address = f"{config.fedscale.ps_ip}:{config.fedscale.ps_port}"
        # of two processes with one number, the aggregator accepts the one that started later
        session = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self._identity = {"client_id": session, "executor_id": str(config.fedscale.this_rank)}
        self._closed = threading.Event()
        self._life = threading.Thread(target=self._live, name="life", daemon=True)

    def open(self) -> None:
        """Register, waiting for an aggregator that is still starting, and show signs of life from then on.

        UserError where another process in place of this one would be refused, too: the job goes on without it where it
        can. A process that is refused only later has met an aggregator of newer code; if it is started anew, it may
        have that code as well.
        """
        try:
            self._register(self._job.register_timeout_s)
        except _RefusedForGood as error:
            raise UserError(str(error)) from None
        self._life.start()

    def ping(self) -> Any:
        """Request work; the aggregator answers when it has a unit, or after a bounded wait."""
        return self._call("CLIENT_PING", job_api_pb2.PingRequest(**self._identity))

    def result(self, event: str, result: bytes) -> Any:
        """Return the message that submits a unit's result; it holds the result, so that the caller may free it."""
        return job_api_pb2.CompleteRequest(**self._identity, event=event, status=True, data_result=result)

    def complete(self, request: Any) -> Any:
        """Submit a unit's result; the reply carries the next unit."""
        return self._call("CLIENT_EXECUTE_COMPLETION", request)

    def close(self) -> None:
        """Stop the signs of life."""
        self._closed.set()

    def leave(self) -> None:
        """Tell the aggregator that this process ends, so that its unit goes to another one at once."""
        self.close()
        request = job_api_pb2.CompleteRequest(**self._identity, event=LEAVE, status=True)
        with suppress(grpc.RpcError, ConnectionError, ValueError):  # it notices by itself, only later
            self._communicator.stub.CLIENT_EXECUTE_COMPLETION(request, timeout=_LEAVE_S)

    def _register(self, timeout_s: float) -> None:
        request = job_api_pb2.RegisterRequest(**self._identity, executor_info=self._info)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._communicator.stub.CLIENT_REGISTER(request, timeout=_CONNECT_S + _travel_s(request.ByteSize()))
                return
            except grpc.RpcError as error:
                self._check(error, time.monotonic() > deadline, timeout_s)
                time.sleep(_PAUSE_S)

    def _call(self, name: str, request: Any) -> Any:
        largest = endpoint.max_bytes(self._job)  # of answers
        limit_s = _REPLY_S + _travel_s(request.ByteSize() + largest)
        deadline = None
        while True:
            begun, stub = time.monotonic(), self._communicator.stub
            try:
                return getattr(stub, name)(request, timeout=limit_s)
            except ValueError:  # gRPC raises it for a closed channel
                if stub is self._communicator.stub:
                    raise
            except grpc.RpcError as error:
                deadline = deadline or time.monotonic() + self._job.reconnect_s
                unknown = error.code() == grpc.StatusCode.FAILED_PRECONDITION
                late = begun > deadline  # a try may take long to notice that its connection is silent
                if not unknown or late:
                    self._check(error, late, self._job.reconnect_s)
                logging.warning(f"{name} is sent again: {error.code().name}, {error.details()}")
                if unknown:
                    self._register(self._job.reconnect_s)
                else:
                    time.sleep(_PAUSE_S)

    def _check(self, error: Any, late: bool, timeout_s: float) -> None:
        """Raise ConnectionError if another attempt cannot succeed, or comes too late."""
        if error.code() == FINAL:
            raise _RefusedForGood(f"the aggregator refused this executor: {error.details()}") from None
        if error.code() not in PASSING and error.code() != grpc.StatusCode.FAILED_PRECONDITION:
            raise ConnectionError(f"the aggregator refused this executor: {error.details()}") from None
        if late:
            raise ConnectionError(
                f"no answer from an aggregator at {self._address} within {timeout_s:g} s: its job was stopped or has "
                f"failed, its machine cannot be reached, or the line to it is slower than {_SLOWEST_MBIT:g} Mbit/s "
                f"({error.details()})"
            ) from None

    def _live(self) -> None:
        """Keep a call open while this process lives; the aggregator notices when it breaks."""
        request = job_api_pb2.CompleteRequest(**self._identity, event=ALIVE, status=True)
        answer_s = _LIFE_SHARE * self._job.lease_s
        while not self._closed.is_set():
            try:
                if self._give_sign(request, answer_s):
                    return
            except (ValueError, ConnectionError) as error:  # closed or refused; if for good, calls for work end too
                if not self._closed.wait(_REFUSED_SHARE * self._job.lease_s):
                    logging.warning(f"a sign of life failed and is tried again: {error}")

    def _give_sign(self, sign: Any, answer_s: float) -> bool:
        """Give one sign of life, and mend the connection if it fails; return whether this process or the job ends.

        ValueError for a closed connection, ConnectionError for a registration that is refused.
        """
        try:
            reply = self._communicator.life_stub.CLIENT_EXECUTE_COMPLETION(sign, timeout=answer_s)
            return bool(reply.event == commons.SHUT_DOWN)
        except grpc.RpcError as error:
            if self._closed.wait(_PAUSE_S):
                return True
            if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                self._register(_CONNECT_S)
            elif error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:  # half-open: nothing arrives any more
                logging.warning("the connection has gone silent: a new one is opened")
                self._communicator.reconnect()
        return False


def _travel_s(size: int) -> float:
    """Return how long bytes take on the slowest line."""
    return size / (_SLOWEST_MBIT * 1e6 / 8)
