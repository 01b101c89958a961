"""The aggregator's side of the wire: FedScale's service, its executors and their work units."""

import itertools
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
from fedscale.cloud import commons
from fedscale.cloud.aggregation.aggregator import Aggregator
from fedscale.cloud.channels import job_api_pb2, job_api_pb2_grpc
from overrides import overrides

from fedscale_ext.config import JobConfig
from fedscale_ext.errors import UserError
from fedscale_ext.runtime import endpoint, events, wire
from fedscale_ext.runtime.board import Board, BoardTimeout, Unit
from fedscale_ext.runtime.no_pickle import NoPickle
from fedscale_ext.runtime.pool import ModelPool
from fedscale_ext.runtime.refusals import Refusals
from fedscale_ext.runtime.registration import ExecutorInfo, read_registration
from fedscale_ext.runtime.results import check_result, failed_result
from fedscale_ext.runtime.signed_grpc import SignatureCheck
from fedscale_ext.runtime.signing import Gate

_PING_WAIT_S = 10.0  # longest that a ping waits for work before it is answered with a dummy event
_FAREWELL_S = 5.0  # longest wait for executors to hear that the job has ended


class Coordinator(NoPickle, Aggregator):
    """FedScale's aggregator service on a board of work units, with a wire that executes nothing.

    gRPC threads only decode, file and encode; everything that decides runs in the main thread.
    """

    global_virtual_clock: float
    round: int

    def __init__(self, config: JobConfig, emit: events.Emit = events.print_event):
        super().__init__(config.fedscale)
        self.config = config
        self.emit = emit
        self.pool = ModelPool()
        self.board = Board()
        self.infos: dict[str, ExecutorInfo] = {}
        self._sent: dict[str, dict[str, int]] = {}
        self._farewells: set[str] = set()
        self._changed = threading.Condition()
        self._unit_ids = itertools.count(1)
        self.refusals = Refusals()
        self._spoilt: set[int] = set()  # units that came back in a form that cannot be read
        self.farewell_s = _FAREWELL_S

    @overrides
    def init_client_manager(self, args: Any) -> None:
        """None: population/ selects clients (FedScale's manager unpickles its trace without checks)."""

    @overrides
    def init_control_communication(self) -> None:
        """Open the port; every executor may wait in a ping at once."""
        self.executors = list(range(self.args.num_executors))
        endpoint.check_reach(self.config)
        gate = Gate(endpoint.signer(self.config), range(1, len(self.executors) + 1), self.config.job.message_window_s)
        self.grpc_server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=2 * len(self.executors) + 2),
            interceptors=[SignatureCheck(gate, self.refusals)],
            options=[*endpoint.limits(self.config), ("grpc.so_reuseport", 0)],
        )
        job_api_pb2_grpc.add_JobServiceServicer_to_server(self, self.grpc_server)
        endpoint.listen(self.grpc_server, self.config)
        self.grpc_server.start()
        logging.info(f"listening on {endpoint.address(self.config)}")

    def wait_for_executors(self) -> ExecutorInfo:
        """The registration that all executors agree on; UserError when one is missing or differs."""
        wanted = len(self.executors)
        deadline = time.monotonic() + self.config.job.register_timeout_s
        with self._changed:
            while len(self.infos) < wanted and not self.board.closed:
                self.emit({"event": "waiting", "for": f"executors ({len(self.infos)} of {wanted} are here)"})
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise UserError(
                        f"only {len(self.infos)} of {wanted} executors registered within "
                        f"{self.config.job.register_timeout_s:g} s; their log says why"
                    )
            if self.board.closed:
                raise UserError("an executor ended before the job began; its log says why")
            infos = [self.infos[executor] for executor in sorted(self.infos)]
        for info in infos[1:]:
            if info.digest != infos[0].digest:
                raise UserError("the executors read different data: make data_dir hold the same files for all of them")
        return infos[0]

    def give_up(self) -> None:
        """End the job from another thread: whoever waits here is woken and raises UserError."""
        self.board.close()
        with self._changed:
            self._changed.notify_all()

    def run_units(self, units: Sequence[Unit]) -> Iterator[Any]:
        """Have the executors do the units; their (header, sections) in the units' order, as they come."""
        try:
            yield from self.board.run(units, self.config.job.unit_timeout_s)
        except BoardTimeout as error:
            raise UserError(f"round {self.round}: {error}; raise unit_timeout_s if executors are only slow") from None

    def make_unit(self, event: str, models: Sequence[str], **header: Any) -> Unit:
        """A work unit of this round that needs the states of ``models``."""
        number = next(self._unit_ids)
        return Unit(number, event, {"unit": number, "round": self.round, "attempt": 1, **header}, tuple(models))

    @overrides
    def CLIENT_REGISTER(self, request: Any, context: Any) -> Any:
        """File what an executor knows of the data. One that registers again has started anew."""
        try:
            info = read_registration(request.executor_info)
        except wire.WireError as error:
            return self._reject(context, "not a registration", str(error))
        if request.executor_id not in {str(rank) for rank in range(1, len(self.executors) + 1)}:
            return self._reject(context, "unknown executor")
        with self._changed:
            self._sent[request.executor_id] = {}
            self.infos[request.executor_id] = info
            self._changed.notify_all()
        self.board.release(request.executor_id)
        return job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)

    @overrides
    def CLIENT_PING(self, request: Any, context: Any) -> Any:
        """The next unit for an executor, with the states that it has not seen yet."""
        executor = request.executor_id
        if executor not in self._sent:
            return self._reject(context, "register before asking for work")
        unit = self.board.take(executor, _PING_WAIT_S)
        if unit is not None:
            return job_api_pb2.ServerResponse(event=unit.event, data=self._encode(executor, unit))
        if not self.board.closed:
            return job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)
        with self._changed:
            self._farewells.add(executor)
            self._changed.notify_all()
        return job_api_pb2.ServerResponse(event=commons.SHUT_DOWN)

    @overrides
    def CLIENT_EXECUTE_COMPLETION(self, request: Any, context: Any) -> Any:
        """File a unit's result; the reply carries the executor's next unit."""
        try:
            header, sections = wire.unpack(request.data_result)
            if type(header.get("unit")) is not int:
                raise wire.WireError("it names no unit")
        except wire.WireError as error:
            return self._reject(context, "not a result", str(error))
        self._file(request.executor_id, header, sections)
        return self.CLIENT_PING(request, context)

    def _file(self, executor: str, header: dict[str, Any], sections: dict[str, wire.Section]) -> None:
        """Put a result on the board. One that cannot be read fails its unit; a test or measurement is tried again."""
        number = header["unit"]
        unit = self.board.held(executor, number)
        if unit is not None:
            try:
                check_result(unit, header, sections, self.infos[executor].test_sizes)
            except wire.WireError as error:
                self.refusals.note("not the result of its unit", str(error))
                if unit.event != commons.CLIENT_TRAIN and number not in self._spoilt:
                    self._spoilt.add(number)
                    self.board.release(executor)
                    return
                header, sections = failed_result(unit, f"its executor's result was refused: {error}"), {}
        if not self.board.complete(executor, number, (header, sections)):
            logging.warning(f"dropped a result of executor {executor} for unit {number}: not awaited")

    def _encode(self, executor: str, unit: Unit) -> bytes:
        sent = self._sent[executor]
        models = {}
        sections = {}
        for key in unit.models:
            model = self.pool[key]
            models[key] = {"version": model.version, "spec": model.spec.to_json()}
            if sent.get(key) != model.version:
                sections[key] = self.pool.encoded(key)
                sent[key] = model.version
        return wire.pack({**unit.header, "models": models}, sections)

    def _reject(self, context: Any, reason: str, detail: str = "") -> Any:
        self.refusals.note(reason, detail)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{reason}: {detail}" if detail else reason)

    @overrides
    def stop(self) -> None:
        """Let the executors go and close the port; waits for them, but not for ever."""
        self.board.close()
        with self._changed:
            self._changed.wait_for(lambda: self._farewells >= set(self.infos), self.farewell_s)
        if self.grpc_server is not None:
            self.grpc_server.stop(grace=min(1.0, self.farewell_s)).wait()
        self.log_writer.close()
