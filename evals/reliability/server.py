"""The running aggregator under fire: gRPC calls by strangers and by an executor that lies, and raw bytes on its port.

What must hold after any of them: a stranger hears UNAUTHENTICATED and nothing else, a liar is refused or its unit
fails, a result that is let in is one that the aggregator's main thread can use, and a good executor is served.
"""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import grpc
from fedscale.cloud.channels import job_api_pb2

from evals.reliability.corpus import INCARNATION, Corpus, configuration
from evals.reliability.decoders import Results
from evals.reliability.mutate import mutated, rewritten
from fedscale_ext.config.job_config import with_values
from fedscale_ext.core.events import ignore_event
from fedscale_ext.entry.launch import prepare_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.transport.board import Board
from fedscale_ext.transport.executor_link import FINAL, Connection
from fedscale_ext.transport.leases import ExecutorProcess
from fedscale_ext.transport.signing import JOINING, Signer
from fedscale_ext.transport.units import Unit
from fedscale_ext.util.token import new_token, read_token

_SERVICE = "/fedscale.JobService/"
_CALLS = ("CLIENT_REGISTER", "CLIENT_PING", "CLIENT_EXECUTE_COMPLETION")
_WAIT_S = 20.0
_TO_STRANGERS = {(grpc.StatusCode.UNAUTHENTICATED, "refused")}
_TOO_LONG = {grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL}  # by gRPC itself: metadata above its limit


class _Always(Board):
    """Every executor holds every unit of the corpus, always; results are used at once, and no ping waits."""

    def __init__(self, corpus: Corpus) -> None:
        super().__init__()
        self._units = {unit.id: unit for unit, _ in corpus.results}
        self._results_of = Results(corpus)
        self.used: Counter[str] = Counter()
        self.close()

    def held(self, process: ExecutorProcess, unit: int) -> Unit | None:
        return self._units.get(unit)

    def renew(self, process: ExecutorProcess) -> None:
        pass

    def fail(self, process: ExecutorProcess, unit: int, attempt: int, reason: str) -> str | None:
        return None

    def complete(self, process: ExecutorProcess, unit: int, attempt: int, result: Any) -> str | None:
        if unit not in self._units:
            return "unplanned"
        self._results_of.use(self._units[unit], *result)
        self.used[self._units[unit].event] += 1
        return None


class Served:
    """One aggregator on a port of this machine, and who calls it."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        token = new_token(folder / "token")
        config = configuration(folder, num_executors=2, ps_port=port, token_file=str(token), job_name="fuzz_server")
        prepare_process(config)
        self._corpus, self._address = corpus, ("127.0.0.1", port)
        self.aggregator = FedAvgAggregator(config, ignore_event)
        self.aggregator.board = self.board = _Always(corpus)
        self.aggregator.incarnation = INCARNATION
        self.aggregator.init_control_communication()
        self._signer = Signer(read_token(token), "fuzz_server")
        self._other = Signer(bytes(32), "fuzz_server")
        self._joining = Signer(read_token(token), "")
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._friend = Connection(with_values(config, this_rank=1))
        self._friend.connect_to_server()
        self.check()

    def attempt(self, random: Random) -> bool:
        """Send one hostile message; whether its call was answered. AssertionError where something gave way."""
        kind = random.random()
        if kind < 0.4:
            return self._stranger(random)
        if kind < 0.98:
            return self._liar(random)
        return self._bytes(random)

    def check(self) -> None:
        """A good executor still registers and hands in its results."""
        used = self.board.used.total()
        self._friend.stub.CLIENT_REGISTER(self._request("CLIENT_REGISTER"), wait_for_ready=True, timeout=_WAIT_S)
        for _, message in self._corpus.results:
            request = job_api_pb2.CompleteRequest(client_id="1", executor_id="1", data_result=message)
            assert self._friend.stub.CLIENT_EXECUTE_COMPLETION(request, timeout=_WAIT_S).event == "terminate_executor"
        assert self.board.used.total() == used + len(self._corpus.results), "a good result was not used"

    def close(self) -> None:
        """Stop the service."""
        self._friend.close_sever_connection()
        self._channel.close()
        self.aggregator.farewell_s = 0.0
        self.aggregator.stop()

    def _request(self, call: str, executor: str = "1", data: bytes | None = None) -> Any:
        if call == "CLIENT_REGISTER":
            data = self._corpus.registrations[0] if data is None else data
            return job_api_pb2.RegisterRequest(client_id=executor, executor_id=executor, executor_info=data)
        if call == "CLIENT_PING":
            return job_api_pb2.PingRequest(client_id=executor, executor_id=executor)
        data = self._corpus.results[0][1] if data is None else data
        return job_api_pb2.CompleteRequest(client_id=executor, executor_id=executor, data_result=data)

    def _call(self, call: str, body: bytes, stamp: bytes | None) -> grpc.RpcError | None:
        metadata = () if stamp is None else (("fsx-stamp-bin", stamp),)
        try:
            self._channel.unary_unary(_SERVICE + call)(body, metadata=metadata, timeout=_WAIT_S)
        except grpc.RpcError as error:
            return error
        return None

    def _stranger(self, random: Random) -> bool:
        """A call that its stamp does not allow: none, of another token, changed, or for another body."""
        call = random.choice([*_CALLS, "NO_SUCH_CALL"])
        body = self._request(call if call in _CALLS else "CLIENT_PING").SerializeToString()
        now = int(1000 * time.time())
        good, _ = self._signer.stamp(_SERVICE + call, 1, body, now)
        stamp: bytes | None
        match random.randrange(6):
            case 0:
                stamp = None
            case 1:
                stamp = self._other.stamp(_SERVICE + call, 1, body, now)[0]
            case 2:
                stamp = self._signer.stamp(_SERVICE + call, 1, body, now - 10**6)[0]
            case 3:
                call, stamp, body = "CLIENT_REGISTER", good, body + b"\0"
            case 4:
                call = call if call in _CALLS else "CLIENT_PING"  # gRPC answers an unknown call that is signed right
                by, number = random.choice([(self._signer, JOINING), (self._joining, 1), (self._signer, 3)])
                stamp = by.stamp(_SERVICE + call, number, body, now)[0]
            case _:
                stamp = mutated(random, good, [good, random.randbytes(93)])
                stamp = None if stamp == good else stamp
        error = self._call(call, body, stamp)
        assert error is not None, f"a forgery was let in: {call} {stamp!r}"
        heard = (error.code(), error.details())
        assert heard in _TO_STRANGERS or (error.code() in _TOO_LONG and len(stamp or b"") > 4000), f"disclosed {heard}"
        return False

    def _liar(self, random: Random) -> bool:
        """A message that is signed right and says something else than an executor of ours would."""
        call = random.choice(["CLIENT_REGISTER", "CLIENT_EXECUTE_COMPLETION", "CLIENT_EXECUTE_COMPLETION"])
        seeds = self._corpus.registrations if call == "CLIENT_REGISTER" else [m for _, m in self._corpus.results]
        change = rewritten if random.random() < 0.7 else mutated
        data = change(random, random.choice(seeds), self._corpus.messages)
        joins = call == "CLIENT_REGISTER" and random.random() < 0.2
        number, by = (JOINING, self._joining) if joins else (1, self._signer)
        body = self._request(call, str(number), data).SerializeToString()
        if random.random() < 0.1:
            body = mutated(random, body, [body])
        error = self._call(call, body, by.stamp(_SERVICE + call, number, body, int(1000 * time.time()))[0])
        if error is None:
            return True
        code, details = error.code(), error.details() or ""
        allowed = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED)
        other_code = (call, code) == ("CLIENT_REGISTER", FINAL) and details.startswith(
            "other code:"
        )  # a changed digest
        assert code in allowed or other_code, f"{call}: {code} {details}"
        return False

    def _bytes(self, random: Random) -> bool:
        """Bytes that are not even HTTP/2, or begin like it and go astray."""
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
        with socket.create_connection(self._address, timeout=_WAIT_S) as line:
            line.sendall(mutated(random, random.choice([b"", preface]) + random.randbytes(60), [preface]))
        return False


@contextmanager
def served(corpus: Corpus, folder: Path) -> Iterator[Served]:
    """A service for the time of a block."""
    service = Served(corpus, folder)
    try:
        yield service
    finally:
        service.close()
