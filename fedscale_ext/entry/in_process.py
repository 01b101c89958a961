"""A whole job in this process: the same classes over a channel that encodes and decodes the same bytes."""

import ctypes
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc

from fedscale_ext.config.job_config import JobConfig, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import Emit, ignore_event
from fedscale_ext.entry.isolation import isolated, logging_into, same_turn
from fedscale_ext.entry.launch import executor_class, prepare_process
from fedscale_ext.util import full_disk


class _Context:
    """What a service method sees of a call."""

    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise ConnectionError(f"{code.name}: {details}")

    def is_active(self) -> bool:
        """Nobody hangs up."""
        return True

    def add_callback(self, _: Callable[[], None]) -> bool:
        """Never called."""
        return True


class _Stub:
    """FedScale's client stub without a network: every message becomes bytes and back."""

    def __init__(self, service: Any):
        self._service = service

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._service, name)

        def call(request: Any, **_: Any) -> Any:
            arrived = type(request).FromString(request.SerializeToString())
            reply = method(arrived, _Context())
            return type(reply).FromString(reply.SerializeToString())

        return call


class _Communicator:
    """Stands where an executor has its connection."""

    def __init__(self, service: Any):
        self.stub = self.life_stub = _Stub(service)

    def connect_to_server(self) -> None:
        """Connected from the start."""

    def close_sever_connection(self) -> None:
        """Nothing to close; the name is FedScale's."""


def run_in_process(config: JobConfig, emit: Emit = ignore_event) -> dict[str, Any]:
    """Run a job with one executor in a thread of this process; returns the summary.

    The result does not depend on the number of executors, so one is enough, and models that draw
    from torch's global generator stay undisturbed. Jobs of several threads take turns. Raises UserError for bad input;
    after an interrupt, the executor's thread has ended when KeyboardInterrupt is raised.
    """
    with isolated(config.fedscale.use_cuda, lambda sentence: emit({"event": "notice", "message": sentence})):
        return _run(with_values(config, num_executors=1, this_rank=0), emit)


def _run(config: JobConfig, emit: Emit) -> dict[str, Any]:
    prepare_process(config)
    from fedscale_ext.config.methods import method_class

    args = config.fedscale
    with ExitStack() as ends:
        with full_disk.refused(args.log_path, full_disk.AT_START):
            ends.enter_context(logging_into(Path(args.log_path, "logs", args.job_name, args.time_stamp, "aggregator")))
            aggregator = without_port(method_class(config.job.method))(config, emit)
        aggregator.executors = [0]  # before the executor registers
        return _with_executor(aggregator, config)


def _with_executor(aggregator: Any, config: JobConfig) -> dict[str, Any]:
    """Run a job's aggregator in this thread, and its executor in another."""
    failure: list[BaseException] = []

    def execute() -> None:
        try:
            with same_turn():
                executor = executor_class(config.job.method)(with_values(config, this_rank=1))
                executor.aggregator_communicator = _Communicator(aggregator)
                executor.run()
        except BaseException as error:
            failure.append(error)
            aggregator.give_up()

    worker = threading.Thread(target=execute, name="executor", daemon=True)
    worker.start()
    try:
        summary: dict[str, Any] = aggregator.run()
        return summary
    except UserError:
        if failure:
            raise failure[0] from None
        raise
    except KeyboardInterrupt:
        _end(worker)
        raise
    finally:
        worker.join()


def _end(worker: threading.Thread) -> None:
    """Have a thread leave what it trains, which may take minutes, before its next step of Python."""
    if worker.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(SystemExit))


def without_port(aggregator_class: type) -> type:
    """The same aggregator, listening nowhere."""

    class InProcessAggregator(aggregator_class):  # type: ignore[misc, valid-type]
        def init_control_communication(self) -> None:
            """Nothing to open."""

    return InProcessAggregator
