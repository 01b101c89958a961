"""The aggregator's side of the wire: FedScale's service, its executors and their work units."""

import itertools
import logging
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent import futures
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Unpack

import grpc
from fedscale.cloud import commons
from fedscale.cloud.aggregation.aggregator import Aggregator
from fedscale.cloud.channels import job_api_pb2, job_api_pb2_grpc
from overrides import overrides

from fedscale_ext.config import methods
from fedscale_ext.config.job_config import JobConfig, shared_argv
from fedscale_ext.core import events
from fedscale_ext.core.errors import JobFailed, UserError, one_line
from fedscale_ext.core.failures import LONGEST
from fedscale_ext.data.job_data import local_digest
from fedscale_ext.metrics.job_folder.earlier_run import earlier_run
from fedscale_ext.metrics.trackers.wandb_run import open_run, without_token
from fedscale_ext.server.attendance import Attendance
from fedscale_ext.server.round.encoded_models import EncodedModels, SentModels
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.kind import CACHED, NOT_CACHED, SENDER
from fedscale_ext.tasks.kinds import check_answer, kinds_by_event
from fedscale_ext.transport import endpoint, wire
from fedscale_ext.transport.board import Board, BoardTimeout, NoExecutors
from fedscale_ext.transport.executor_link import ALIVE, FINAL, LEAVE
from fedscale_ext.transport.joining import JOIN, wanted_number, write_offer
from fedscale_ext.transport.leases import ExecutorProcess, Leases, NotRegistered, NumberInUse, Superseded
from fedscale_ext.transport.no_pickle import NoPickle
from fedscale_ext.transport.refused_messages import Refusals
from fedscale_ext.transport.registration import ExecutorInfo, other_code, read_registration
from fedscale_ext.transport.signed_grpc import SignatureCheck
from fedscale_ext.transport.signing import JOINING, Gate
from fedscale_ext.transport.unit_retries import UnitTracker
from fedscale_ext.transport.units import Attempt, Unit, UnitHeader, UnitRequest
from fedscale_ext.util.code_digest import code_digest

_PING_WAIT_S = 10.0  # longest that a ping waits for work before it is answered with a dummy event
_ALIVE_SHARE = 1 / 3  # of a lease: how long a call that shows life stays open
_FAREWELL_S = 5.0  # longest wait for executors to hear that the job has ended
_MOST_EXECUTORS = 1024  # at once
_INVALID = grpc.StatusCode.INVALID_ARGUMENT
_ADVICE = "the executors' log says why; raise unit_timeout_s if they are only slow"
_NONE_LEFT = "the log of each says why; raise replacement_s if others may come later"


class Coordinator(NoPickle, Aggregator):
    """FedScale's aggregator service on a board of work units, with a wire that executes nothing.

    The main thread puts units on the board and takes results in order; hooks run only there. gRPC threads register
    executors, give them units, and check and file answers; the board's lock guards units and retries.
    """

    Executor: ClassVar[type[Any]]  # the method's
    log_dir: Path  # the job's folder
    global_virtual_clock: float
    round: int

    def __init__(self, config: JobConfig, emit: events.Emit = events.print_event):
        super().__init__(without_token(config.fedscale))
        self.wandb = open_run(config)
        self.config = config
        self.emit = emit
        self.pool = ModelPool(config.job.method)
        self._encoded = EncodedModels(self.pool)
        self._kinds = kinds_by_event(self.Executor.kinds)
        job = config.job
        self.attendance = Attendance(self._emit_attendance, lambda: self.board.here)
        tracker = UnitTracker(job.unit_tries)
        self.board = Board(Leases(job.lease_s), tracker, job.replacement_s, self.attendance.tell_soon)
        #: digest of the code that executors must run; an entry of the user's may have a subclass as the aggregator
        self.executor_code = code_digest(methods.method_class(job.method))
        #: names this start of the job: what was computed for an earlier one does not count
        self.incarnation = secrets.token_hex(8)
        self.infos: dict[str, ExecutorInfo] = {}
        self._agreed: ExecutorInfo | None = None
        self._sent: dict[str, SentModels] = {}
        self._farewells: set[str] = set()
        self._changed = threading.Condition()
        self._last_number = 0  # of an executor that joined
        self._requested: set[int] = set()  # numbers that executors which joined had asked for
        self._unit_ids = itertools.count(1)
        self.refusals = Refusals()
        #: digest of the job's data on this machine; None where it has none, or the job's executors are its own
        self.local_digest: str | None = None
        self._needed_digest: str | None = None  # of the data that executors must have; None where any may come first
        self._local_data_read = False
        self.farewell_s = _FAREWELL_S

    @overrides
    def init_client_manager(self, args: Any) -> None:
        """None: population/ selects clients (FedScale's manager unpickles its trace without checks)."""

    @overrides
    def init_control_communication(self) -> None:
        """Open the port; every executor may wait in a ping at once, those that join later, too."""
        self.executors = list(range(self.args.num_executors))
        endpoint.check_reach(self.config)
        joining = endpoint.joining_signer(self.config)
        gate = Gate(endpoint.signer(self.config), joining, self.config.job.message_window_s)
        self.grpc_server = grpc.server(
            # each waits in a ping and in a call that shows life; calls of broken connections end at once. Threads
            # start when they are needed
            futures.ThreadPoolExecutor(max_workers=4 * _MOST_EXECUTORS + 4),
            interceptors=[SignatureCheck(gate, self.refusals)],
            options=[*endpoint.limits(self.config), *endpoint.ANY_PINGS, ("grpc.so_reuseport", 0)],
        )
        job_api_pb2_grpc.add_JobServiceServicer_to_server(self, self.grpc_server)
        endpoint.listen(self.grpc_server, self.config)
        self.grpc_server.start()
        logging.info(f"listening on {endpoint.address(self.config)}")

    def wait_for_executors(self) -> ExecutorInfo:
        """The registration that all executors agree on; UserError when one is missing or differs.

        A job without executors of its own begins with the first one that joins.
        """
        if not self.executors:
            self.read_local_data()
        expected = max(1, len(self.executors))
        kind = "executors" if self.executors else "an executor that joins"
        deadline = time.monotonic() + self.config.job.register_timeout_s
        with self._changed:
            while len(self.infos) < expected and not self.board.closed:
                self.emit({"event": "waiting", "for": f"{kind} ({len(self.infos)} of {expected} are here)"})
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    if not self.executors:
                        raise UserError(
                            f"no executor joined within {self.config.job.register_timeout_s:g} s"
                            f"{self.refusals.in_words()}: raise register_timeout_s, or give the job executors of its "
                            "own in worker_ips"
                        )
                    raise UserError(
                        f"only {len(self.infos)} of {expected} executors registered within "
                        f"{self.config.job.register_timeout_s:g} s; their log says why"
                    )
            if self.board.closed:
                raise UserError("an executor ended before the job began; its log says why")
            infos = [self.infos[executor] for executor in sorted(self.infos)]
        for info in infos:
            if not info.same_data(infos[0]) or self._needed_digest not in (None, info.digest):
                raise UserError("the executors read different data: make data_dir hold the same files for all of them")
        with self._changed:
            self._agreed = infos[0]
            self._changed.notify_all()  # whoever asked to join meanwhile
        return infos[0]

    def read_local_data(self) -> None:
        """Learn which data those that join must have: this machine's, or those of the run that the job continues.

        Whoever asks meanwhile waits.
        """
        needed = digest = local_digest(self.config)
        if digest is None and self.config.job.resumes:
            needed = earlier_run(self.log_dir).data_digest
        with self._changed:
            self.local_digest, self._needed_digest, self._local_data_read = digest, needed, True
            self._changed.notify_all()

    def give_up(self) -> None:
        """End the job from another thread: whoever waits here is woken and raises UserError."""
        self.board.close()
        with self._changed:
            self._changed.notify_all()

    def run_units(self, units: Sequence[Unit], *, lenient: bool = False) -> Iterator[Any]:
        """Have the executors do the units; their (header, sections) in the units' order, as they come, and a
        Dropped for one that was given up (``lenient``: also where none comes any more)."""
        try:
            for result in self.board.run(units, self.config.job.unit_timeout_s, lenient=lenient):
                self.attendance.tell()
                yield result
        except BoardTimeout as error:
            advice = _NONE_LEFT if isinstance(error, NoExecutors) else _ADVICE
            raise JobFailed(f"round {self.round}: {error}; {advice}") from None

    def make_unit(
        self,
        event: str,
        models: Sequence[str],
        sections: Callable[[Container[str]], Mapping[str, bytes]] | None = None,
        cached: Callable[[ExecutorProcess], Mapping[str, str]] | None = None,
        **request: Unpack[UnitRequest],
    ) -> Unit:
        """A work unit of this round that needs the states of ``models``; other arguments are those of :class:`Unit`."""
        number = next(self._unit_ids)
        header: UnitHeader = {"job": self.incarnation, "unit": number, "round": self.round, **request}
        return Unit(number, event, header, tuple(models), sections, cached)

    @overrides
    def CLIENT_REGISTER(self, request: Any, context: Any) -> Any:
        """File what an executor knows of the data. One that registers again has started anew.

        Under the number 0, an executor that has none asks to join.
        """
        if request.executor_id == str(JOINING) and not request.executor_info:
            return self._offer(wanted_number(request.client_id))
        try:
            info = read_registration(request.executor_info)
        except wire.WireError as error:
            return self._reject(context, "not a registration", str(error))
        if re.fullmatch(r"[1-9][0-9]{0,9}", request.executor_id) is None:
            return self._reject(context, "not the number of an executor")
        if info.code != self.executor_code:
            return self._reject(context, "other code", other_code(self.config), code=FINAL)
        other = self._agreed is not None and not info.same_data(self._agreed)
        if other or self._needed_digest not in (None, info.digest):
            return self._reject(context, "other data", "make data_dir hold the same files")
        process = ExecutorProcess(request.executor_id, request.client_id)
        present = self.board.here
        if process.executor not in present and len(present) >= _MOST_EXECUTORS:
            return self._reject(context, "too many executors", f"the job takes {_MOST_EXECUTORS:,}")
        try:
            self.board.register(process)
        except NumberInUse as error:
            return self._reject(context, "executor number taken", str(error))
        with self._changed:
            if process.executor not in self._sent or self._sent[process.executor].process != process:
                self._sent[process.executor] = SentModels(process)
            first = next(iter(self.infos.values()), info)
            if info.same_data(first):  # so that what is said of the clients is held once
                info = replace(first, device=info.device, device_name=info.device_name, host=info.host,
                               versions=info.versions)  # fmt: skip
            self.infos[process.executor] = info
            self._changed.notify_all()
        self.attendance.come(process.executor, info, joined=int(process.executor) > len(self.executors))
        return job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)

    def _offer(self, requested: int | None) -> Any:
        """Offer a number and the job's settings to a process that joins, once the job's own executors are here.

        A job without them offers once the data of this machine are read.
        """
        with self._changed:
            self._changed.wait_for(self._takes_more, _PING_WAIT_S)
            if self.board.closed:
                return job_api_pb2.ServerResponse(event=commons.SHUT_DOWN)
            if not self._takes_more():
                return job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)
            free = requested is not None and str(requested) not in self.infos and requested > self._last_number
            if requested is not None and (free or requested in self._requested):
                number = requested  # whoever had it asked for it, too, and is replaced
                self._requested.add(number)
            else:
                number = max(self._last_number, len(self.executors)) + 1
                # one may be of an earlier start of the aggregator
                while str(number) in self.infos or number in self._requested:
                    number += 1
                self._last_number = number
        data = self._agreed.digest if self._agreed is not None else self._needed_digest
        offer = write_offer(number, self.config.fedscale.job_name, shared_argv(self.config), self.executor_code, data)
        return job_api_pb2.ServerResponse(event=JOIN, data=offer)

    def _takes_more(self) -> bool:
        return self._agreed is not None or self._local_data_read or self.board.closed

    def _emit_attendance(self, event: dict[str, Any]) -> None:
        """Tell the driver of the executors; a job within one process has one, of which there is nothing to tell."""
        if self.grpc_server is not None:
            waits = {} if self.board.closed else {"replacement_s": self.config.job.replacement_s}
            self.emit({**event, **waits})

    @overrides
    def CLIENT_PING(self, request: Any, context: Any) -> Any:
        """The next unit for an executor, with the states that it has not seen yet."""
        return self._next(ExecutorProcess(request.executor_id, request.client_id), context)

    def _next(self, process: ExecutorProcess, context: Any, *, whole: bool = False) -> Any:
        """The next unit for an executor; ``whole``: with all sections that its clients need."""
        context.add_callback(self.board.wake)
        try:
            attempt = self.board.take(process, _PING_WAIT_S, context.is_active)
        except NotRegistered as error:
            return self._send_away(context, error)
        if attempt is not None:
            self.attendance.take(process.executor, attempt.unit)
        self.attendance.tell()
        if attempt is not None:
            return job_api_pb2.ServerResponse(event=attempt.unit.event, data=self._encode(process, attempt, whole))
        if not self.board.closed:
            return job_api_pb2.ServerResponse(event=commons.DUMMY_EVENT)
        with self._changed:
            self._farewells.add(process.executor)
            self._changed.notify_all()
        return job_api_pb2.ServerResponse(event=commons.SHUT_DOWN)

    @overrides
    def CLIENT_EXECUTE_COMPLETION(self, request: Any, context: Any) -> Any:
        """File a unit's result; the reply carries the executor's next unit.

        The event ALIVE makes the call a sign of life, LEAVE the last one of an executor.
        """
        process = ExecutorProcess(request.executor_id, request.client_id)
        if request.event == ALIVE:
            return self._see_alive(process, context)
        if request.event == LEAVE:
            self.board.leave(process)
            self.attendance.leave(process.executor)
            return job_api_pb2.ServerResponse(event=commons.SHUT_DOWN)
        try:
            self.board.renew(process)
            header, sections = wire.unpack(request.data_result)
            job, unit, attempt = (header.get(name) for name in ("job", "unit", "attempt"))
            if type(job) is not str or type(unit) is not int or type(attempt) is not int:
                raise wire.WireError("it names no unit")
        except NotRegistered as error:
            return self._send_away(context, error)
        except wire.WireError as error:
            return self._reject(context, "not a result", str(error))
        if header.get(NOT_CACHED) is True:  # it gets the unit that it holds again
            return self._next(process, context, whole=True)
        fault = self._file(process, unit, attempt, header, sections)
        if fault is not None:
            logging.warning(f"executor {process.executor}, unit {unit}: {fault}")
        return self._next(process, context)

    def _file(self, process: ExecutorProcess, unit: int, attempt: int, header: Any, sections: Any) -> str | None:
        """Put a result on the board; why it was dropped and counted instead, else None. One that cannot be read counts
        as a failure of its executor: the unit is tried again."""
        if header["job"] != self.incarnation:
            self.board.count(stale := "results of an earlier start dropped")
            return stale
        held = self.board.held(process, unit)
        failed = one_line(str(header["failed"]), LONGEST) if "failed" in header else None
        if failed is None and held is not None:
            try:
                check_answer(self._kinds, held, header, sections, self.infos[process.executor].test_sizes)
            except wire.WireError as error:
                self.refusals.note("not the result of its unit", str(error))
                failed = f"its executor's result was refused: {error}"
        if failed is not None:
            logging.warning(f"executor {process.executor} could not do unit {unit}: {failed}")
            return self.board.fail(process, unit, attempt, failed)
        fault = self.board.complete(process, unit, attempt, ({**header, SENDER: process}, sections))
        if fault is None:
            self._sent[process.executor].confirm(process)
            self.attendance.finish(process.executor, unit)
        return fault

    def _see_alive(self, process: ExecutorProcess, context: Any) -> Any:
        """Answered late on purpose: when this call ends before that, so has the executor's connection."""
        context.add_callback(self.board.wake)
        try:
            self.board.stay(process, _ALIVE_SHARE * self.config.job.lease_s, context.is_active)
        except NotRegistered as error:
            return self._send_away(context, error)
        return job_api_pb2.ServerResponse(event=commons.SHUT_DOWN if self.board.closed else commons.DUMMY_EVENT)

    def _encode(self, process: ExecutorProcess, attempt: Attempt, whole: bool) -> bytes:
        sent, unit = self._sent[process.executor], attempt.unit
        models = {}
        cached = dict(unit.cached(process)) if unit.cached and not whole else {}
        sections = dict(unit.sections(cached)) if unit.sections else {}
        for key in unit.models:
            model = self.pool[key]
            models[key] = {"version": model.version, "spec": model.spec.to_json()}
            host = self.pool.host(key)
            if host is not model.spec:
                models[key]["host"] = host.to_json()
            if model.transient:
                models[key]["transient"] = True
            if not sent.holds(process, key, model.version):
                sections[key] = self._encoded.section(key)
        lasting = (self.pool[key] for key in unit.models if not self.pool[key].transient)
        sent.offered = {model.key: model.version for model in lasting}
        return wire.pack({**unit.header, "attempt": attempt.number, "models": models, CACHED: cached}, sections)

    def _send_away(self, context: Any, error: NotRegistered) -> None:
        """The caller must register first, or end because another process has its number."""
        code = grpc.StatusCode.ABORTED if isinstance(error, Superseded) else grpc.StatusCode.FAILED_PRECONDITION
        context.abort(code, str(error))

    def _reject(self, context: Any, reason: str, detail: str = "", *, code: Any = _INVALID) -> Any:
        self.refusals.note(reason, detail)
        context.abort(code, f"{reason}: {detail}" if detail else reason)

    @overrides
    def stop(self) -> None:
        """Let the executors go and close the port; waits for them, but not for ever."""
        self.board.close()
        with self._changed:
            self._changed.wait_for(lambda: self._farewells >= self.board.here, self.farewell_s)
        if self.grpc_server is not None:
            self.grpc_server.stop(grace=min(1.0, self.farewell_s)).wait()
        self.attendance.close()
        self.log_writer.close()
        if self.wandb is not None:
            self.wandb.finish(failed=sys.exc_info()[0] is not None)
