"""An executor's side of the connection: calls that outlast its breaks and the aggregator's restarts."""

import logging
import secrets
import threading
import time
from typing import Any

import grpc
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2

from fedscale_ext.config.job_config import JobConfig

ALIVE = "alive"  # event of a call that shows that the executor lives, whatever it works at
_LIFE_SHARE = 2 / 3  # of a lease: longest wait for the answer to such a call
_REPLY_S = 120.0  # the aggregator answers within ten seconds, with work or without
_CONNECT_S = 10.0  # of one attempt to register
_PAUSE_S = 0.2  # between two attempts
# what a call ends with when its connection breaks, or the aggregator with it
_PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}


class Link:
    """FedScale's calls by one process that serves as an executor.

    ``communicator`` holds the stub, ``info`` is the registration. A call that got no answer is sent
    again for ``reconnect_s``; an aggregator that does not know this process, because it was restarted,
    gets the registration first. Sending again is safe: what was processed is dropped, and a unit that
    this process holds is answered to it again.
    """

    def __init__(self, communicator: Any, config: JobConfig, info: bytes) -> None:
        self._communicator, self._info, self._job = communicator, info, config.job
        self._address = f"{config.fedscale.ps_ip}:{config.fedscale.ps_port}"
        # of two processes with one number the aggregator follows the one that started later
        session = f"{time.time_ns():020d}-{secrets.token_hex(4)}"
        self._own = {"client_id": session, "executor_id": str(config.fedscale.this_rank)}
        self._closed = threading.Event()
        self._life = threading.Thread(target=self._live, name="life", daemon=True)

    def open(self) -> None:
        """Register, waiting for an aggregator that is not up yet, and show signs of life from then on."""
        self._register(self._job.register_timeout_s)
        self._life.start()

    def ping(self) -> Any:
        """Ask for work; the aggregator answers when it has some or after a bounded wait."""
        return self._call("CLIENT_PING", job_api_pb2.PingRequest(**self._own))

    def result(self, event: str, result: bytes) -> Any:
        """The message that hands in a unit's result, which it holds: whoever made it need not."""
        return job_api_pb2.CompleteRequest(**self._own, event=event, status=True, data_result=result)

    def complete(self, request: Any) -> Any:
        """Hand in a unit's result; the reply brings the next unit."""
        return self._call("CLIENT_EXECUTE_COMPLETION", request)

    def close(self) -> None:
        """No more signs of life."""
        self._closed.set()

    def _register(self, within_s: float) -> None:
        request = job_api_pb2.RegisterRequest(**self._own, executor_info=self._info)
        deadline = time.monotonic() + within_s
        while True:
            try:
                self._communicator.stub.CLIENT_REGISTER(request, wait_for_ready=True, timeout=_CONNECT_S)
                return
            except grpc.RpcError as error:
                self._check(error, deadline, within_s)
                time.sleep(_PAUSE_S)

    def _call(self, name: str, request: Any) -> Any:
        deadline = None
        while True:
            stub = self._communicator.stub
            try:
                return getattr(stub, name)(request, timeout=_REPLY_S)
            except ValueError:  # gRPC's word for a channel that was closed
                if stub is self._communicator.stub:
                    raise
            except grpc.RpcError as error:
                deadline = deadline or time.monotonic() + self._job.reconnect_s
                unknown = error.code() == grpc.StatusCode.FAILED_PRECONDITION
                if not unknown or time.monotonic() > deadline:
                    self._check(error, deadline, self._job.reconnect_s)
                logging.warning(f"{name} is sent again: {error.code().name}, {error.details()}")
                if unknown:
                    self._register(self._job.reconnect_s)
                else:
                    time.sleep(_PAUSE_S)

    def _check(self, error: Any, deadline: float, within_s: float) -> None:
        """ConnectionError unless trying again may help."""
        if error.code() not in _PASSING and error.code() != grpc.StatusCode.FAILED_PRECONDITION:
            raise ConnectionError(f"the aggregator refused this executor: {error.details()}") from None
        if time.monotonic() > deadline:
            raise ConnectionError(
                f"no answer from an aggregator at {self._address} within {within_s:g} s: {error.details()}"
            ) from None

    def _live(self) -> None:
        """Keep a call open for as long as this process lives; the aggregator notices when it breaks."""
        request = job_api_pb2.CompleteRequest(**self._own, event=ALIVE, status=True)
        answer_s = _LIFE_SHARE * self._job.lease_s
        while not self._closed.is_set():
            try:
                reply = self._communicator.stub.CLIENT_EXECUTE_COMPLETION(request, timeout=answer_s)
                if reply.event == commons.SHUT_DOWN:
                    return
            except grpc.RpcError as error:
                if self._closed.wait(_PAUSE_S):
                    return
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    self._register_anew()
                elif error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:  # half open: nothing comes through any more
                    logging.warning("the connection has gone silent: a new one is opened")
                    self._communicator.reconnect()
            except (ValueError, ConnectionError):  # the channel was closed: so is the job, for this process
                return

    def _register_anew(self) -> None:
        try:
            self._register(_CONNECT_S)
        except ConnectionError as error:  # the next call for work meets it too, and ends this process
            logging.warning(str(error))
