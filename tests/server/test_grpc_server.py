"""What the service does with messages that no executor of ours would send."""

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from aggregator_service import registration
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2

from fedscale_ext import models
from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.errors import JobFailed, UserError
from fedscale_ext.core.events import ignore_event
from fedscale_ext.entry.launch import prepare_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.transport import wire
from fedscale_ext.transport.executor_link import ALIVE
from fedscale_ext.transport.joining import read_offer
from fedscale_ext.transport.leases import ExecutorProcess
from fedscale_ext.transport.signing import JOINING
from fedscale_ext.transport.units import Dropped, Unit
from fedscale_ext.util.code_digest import code_digest
from fedscale_ext.util.text_columns import pack_texts


class Aborted(Exception):
    pass


class Context:
    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(f"{code.name}: {details}")

    def is_active(self) -> bool:
        return True

    def add_callback(self, _: Any) -> bool:
        return True


@pytest.fixture
def service(job_file: Path) -> Any:
    config = load_config(job_file, ["num_executors=2"])
    prepare_process(config)
    aggregator = FedAvgAggregator(config, ignore_event)
    aggregator.executors = [0, 1]
    yield aggregator
    aggregator.board.close()
    aggregator.log_writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        job_api_pb2.RegisterRequest(executor_id="1", executor_info=b"cos\nsystem\n(S'true'\ntR."),
        registration("x"),
        registration("01"),
        registration("0"),
        registration(versions=3),
        registration(versions={}),
        registration(device="tpu"),
        registration(device="cpu\n"),
        registration(data={}),
        registration(digest=["d"]),
        registration(digest="d" * 10_000),
        registration(
            sizes=dict.fromkeys(("train", "test", "majority", "most_frequent"), torch.zeros(0, dtype=torch.int64))
        ),
        registration(
            sizes={
                "train": torch.tensor([3, 2**62]),
                "test": torch.tensor([1, 0]),
                "majority": torch.tensor([1, 0]),
                "most_frequent": torch.tensor([1, 0]),
            }
        ),
        registration(sizes={"train": torch.tensor([3])}),
        registration(
            sizes={
                "train": torch.tensor([3, 4]),
                "test": torch.tensor([1, 0]),
                "majority": torch.tensor([1, 0]),
                "most_frequent": torch.tensor([1, 1]),
            }
        ),
        registration(
            sizes={
                "train": torch.tensor([3, 4]),
                "test": torch.tensor([1, 0]),
                "majority": torch.tensor([2, 0]),
                "most_frequent": torch.tensor([1, 0]),
            }
        ),
        registration(
            sizes={
                "train": torch.tensor([3, -4]),
                "test": torch.tensor([1, 0]),
                "majority": torch.tensor([1, 0]),
                "most_frequent": torch.tensor([1, 0]),
            }
        ),
        registration(
            sizes={
                "train": torch.tensor([3, 4]),
                "test": torch.tensor([1]),
                "majority": torch.tensor([1, 0]),
                "most_frequent": torch.tensor([1, 0]),
            }
        ),
        registration(
            sizes={
                "train": torch.tensor([3.5, 4]),
                "test": torch.tensor([1, 0]),
                "majority": torch.tensor([1, 0]),
                "most_frequent": torch.tensor([1, 0]),
            }
        ),
        registration(names=pack_texts(["a"])),
        registration(names=pack_texts(["a", "b", "c"])),
        registration(names=pack_texts(["a", "a"])),
        registration(names=pack_texts(["a", ""])),
        registration(names=pack_texts(["a", "b" * 65_537])),
        registration(names={**pack_texts(["a", "b"]), "offsets": torch.tensor([0, 9, 2])}),
        registration(names={"bytes": torch.tensor([255, 98], dtype=torch.uint8), "offsets": torch.tensor([0, 1, 2])}),
        registration(names={"offsets": torch.tensor([0, 1, 2])}),
    ],
)
def test_a_registration_that_cannot_be_right_is_refused_and_counted(service: Any, request_: Any) -> None:
    with pytest.raises(Aborted):
        service.CLIENT_REGISTER(request_, Context())
    assert sum(service.refusals.counts().values()) == 1
    assert not service.infos


def test_nobody_gets_work_before_registering(service: Any) -> None:
    # FedScale answers any bytes with a task and the weights
    for call in (
        lambda: service.CLIENT_PING(job_api_pb2.PingRequest(executor_id="1"), Context()),
        lambda: service.CLIENT_EXECUTE_COMPLETION(
            job_api_pb2.CompleteRequest(executor_id="1", event=commons.UPLOAD_MODEL, data_result=b"junk"), Context()
        ),
    ):
        with pytest.raises(Aborted):
            call()


def test_executors_register_once_and_must_agree(service: Any) -> None:
    for executor in ("1", "1", "2"):
        service.CLIENT_REGISTER(registration(executor), Context())
    info = service.wait_for_executors()
    assert info.train_sizes.tolist() == [3, 4] and info.client_names == ["a", "b"]
    assert service.infos["1"].client_names is service.infos["2"].client_names  # half a million names, once


def test_executors_that_read_different_data_end_the_job(service: Any) -> None:
    service.CLIENT_REGISTER(registration("1"), Context())
    service.CLIENT_REGISTER(registration("2", digest="other"), Context())
    with pytest.raises(UserError, match="different data"):
        service.wait_for_executors()


def test_executors_that_name_clients_differently_end_the_job(service: Any) -> None:
    service.CLIENT_REGISTER(registration("1"), Context())
    service.CLIENT_REGISTER(registration("2", names=pack_texts(["b", "a"])), Context())
    with pytest.raises(UserError, match="different data"):
        service.wait_for_executors()


def test_a_replacement_must_read_the_jobs_data(service: Any) -> None:
    for executor in ("1", "2"):
        service.CLIENT_REGISTER(registration(executor), Context())
    service.wait_for_executors()
    with pytest.raises(Aborted, match="make data_dir hold the same files"):
        service.CLIENT_REGISTER(registration("2", digest="other"), Context())
    with pytest.raises(Aborted, match="make data_dir hold the same files"):
        service.CLIENT_REGISTER(registration("2", names=pack_texts(["b", "a"])), Context())
    service.CLIENT_REGISTER(registration("2"), Context())
    assert len(service.infos) == 2


def test_a_replacement_must_run_the_jobs_code(service: Any) -> None:
    sentence = (
        r"PERMISSION_DENIED: other code: this executor's fedscale_ext, method fedavg, torch or NumPy differs from "
        r"that of job tiny; install the job's version, or end the job and start it again with --resume$"
    )
    with pytest.raises(Aborted, match=sentence):
        service.CLIENT_REGISTER(registration("2", code="another"), Context())
    assert not service.infos and service.refusals.counts() == {"other code": 1}


class Changed(FedAvgAggregator):
    """What an ``aggregator_entry`` of the user's may run."""


def test_executors_of_an_aggregator_of_the_users_run_the_methods_code(job_file: Path) -> None:
    config = load_config(job_file, ["num_executors=2"])
    prepare_process(config)
    aggregator = Changed(config, ignore_event)
    aggregator.executors = [0, 1]
    for executor in ("1", "2"):
        aggregator.CLIENT_REGISTER(registration(executor), Context())
    aggregator.wait_for_executors()
    joining = job_api_pb2.RegisterRequest(client_id="0", executor_id=str(JOINING))
    offer = read_offer(aggregator.CLIENT_REGISTER(joining, Context()).data)
    assert offer.code == code_digest(FedAvgAggregator) != aggregator.code


def test_missing_executors_are_named_after_a_bounded_wait(job_file: Path) -> None:
    config = load_config(job_file, ["num_executors=2", "register_timeout_s=0.2"])
    prepare_process(config)
    aggregator = FedAvgAggregator(config, ignore_event)
    aggregator.executors = [0, 1]
    aggregator.CLIENT_REGISTER(registration("1"), Context())
    with pytest.raises(UserError, match="only 1 of 2 executors"):
        aggregator.wait_for_executors()


@pytest.mark.parametrize(("there", "key"), [(True, "unit_timeout_s"), (False, "replacement_s")])
def test_a_job_that_executors_leave_alone_fails_and_names_the_key(job_file: Path, there: bool, key: str) -> None:
    config = load_config(job_file, ["num_executors=1", "unit_timeout_s=0.05", "replacement_s=0.05"])
    prepare_process(config)
    aggregator = FedAvgAggregator(config, ignore_event)
    aggregator.round, aggregator.executors = 3, [0]
    if there:
        aggregator.CLIENT_REGISTER(registration("1"), Context())
    with pytest.raises(JobFailed, match=rf"^round 3: .*; raise {key} if"):
        list(aggregator.run_units([aggregator.make_unit("train", [])]))


def test_a_result_for_no_unit_is_dropped(service: Any) -> None:
    service.CLIENT_REGISTER(registration(), Context())
    service.board.close()
    result = wire.pack({"job": service.incarnation, "unit": 99, "attempt": 1, "results": []})
    reply = service.CLIENT_EXECUTE_COMPLETION(
        job_api_pb2.CompleteRequest(client_id="1", executor_id="1", event=commons.UPLOAD_MODEL, data_result=result),
        Context(),
    )
    assert reply.event == commons.SHUT_DOWN
    assert service.board.faults() == {"unplanned results dropped": 1}


def say(service: Any, unit: Any, sections: Any = None, **header: Any) -> Any:
    default = {"job": service.incarnation, "unit": unit, "attempt": 1}
    result = wire.pack({**default, **header}, sections)
    request = job_api_pb2.CompleteRequest(
        client_id="1", executor_id="1", event=commons.UPLOAD_MODEL, data_result=result
    )
    return service.CLIENT_EXECUTE_COMPLETION(request, Context())


def posted(service: Any, *units: Unit) -> Any:
    """Results of units, waited for in a thread; the executor 1 is registered and holds the first one."""
    service.CLIENT_REGISTER(registration(), Context())
    waiting = futures.ThreadPoolExecutor(1).submit(lambda: list(service.board.run(units, 10.0)))
    attempt = service.board.take(ExecutorProcess("1", "1"), 10.0)
    assert attempt is not None and attempt.unit == units[0]
    return waiting


@pytest.mark.parametrize(
    ("unit", "bad"),
    [
        (
            Unit(1, commons.CLIENT_TRAIN, {"items": [{"client": 1}, {"client": 2}], "sum": True, "states": False}, ()),
            [{"client": [1]}],
        ),
        (Unit(1, commons.MODEL_TEST, {"clients": [1]}, ()), []),
    ],
)
def test_a_malformed_result_is_a_failure_of_its_executor(service: Any, unit: Unit, bad: Any) -> None:
    results = posted(service, unit)
    reply = say(service, 1, results=bad)
    again = wire.unpack(reply.data)[0]
    assert (again["attempt"], {**unit.header, **again}) == (2, again)  # the same unit: nobody else is there
    threading.Timer(0.0, lambda: results.result() and service.board.close()).start()
    say(service, 1, results=bad, attempt=2)
    (dropped,) = results.result(10.0)
    assert isinstance(dropped, Dropped) and "was refused" in dropped.reason
    assert service.refusals.counts() == {"not the result of its unit": 2}


@pytest.mark.parametrize("unit", [None, "1", 1.5, True, [1]])
def test_a_result_that_names_no_unit_is_refused(service: Any, unit: Any) -> None:
    service.CLIENT_REGISTER(registration(), Context())
    with pytest.raises(Aborted, match="names no unit"):
        say(service, unit)


def test_the_port_is_on_loopback_and_one_in_use_is_named(service: Any, job_file: Path) -> None:
    import socket

    service.args.ps_ip = "0.0.0.0"
    with pytest.raises(UserError, match="not a loopback address: set token_file"):
        service.init_control_communication()
    service.args.ps_ip = "127.0.0.1"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service.args.ps_port = str(taken.getsockname()[1])
        with pytest.raises(UserError, match="in use"):
            service.init_control_communication()


def register(service: Any, *executors: str) -> None:
    for executor in executors:
        service.CLIENT_REGISTER(registration(executor), Context())


def ping(service: Any, executor: str = "1", session: str | None = None) -> Any:
    request = job_api_pb2.PingRequest(client_id=session or executor, executor_id=executor)
    return service.CLIENT_PING(request, Context())


def reduce_upload(service: Any, reply: Any, executor: str = "1", **changes: Any) -> Any:
    header, _ = wire.unpack(reply.data)
    result = {name: header[name] for name in ("job", "unit", "attempt")} | {"results": []} | changes
    request = job_api_pb2.CompleteRequest(
        client_id=executor, executor_id=executor, event=reply.event, data_result=wire.pack(result)
    )
    return service.CLIENT_EXECUTE_COMPLETION(request, Context())


@pytest.fixture
def working(service: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """With a model, two units and one executor."""
    monkeypatch.setattr("fedscale_ext.server.grpc_server._PING_WAIT_S", 0.0)
    service.round = 1
    spec = models.named_spec("cnn_small", (1, 28, 28), 4)
    service.pool.add("global", spec, models.initial_state(spec, 1))
    units = [service.make_unit(commons.CLIENT_TRAIN, ["global"], items=[], sum=True, states=False) for _ in range(2)]
    service.board._tracker.add(units)
    register(service, "1")
    return service


def test_a_state_is_sent_again_until_a_result_shows_that_it_arrived(working: Any) -> None:
    lost, again = ping(working), ping(working)
    assert wire.unpack(lost.data) == wire.unpack(again.data)
    assert "global" in wire.unpack(again.data)[1]
    following = reduce_upload(working, again)
    header, sections = wire.unpack(following.data)
    assert header["unit"] == 2 and not sections
    # sent again, because the reply was lost: counted, and the same answer
    assert reduce_upload(working, again).data == following.data
    assert working.board.faults() == {"results of finished units dropped": 1}


def test_a_restarted_executor_gets_the_states_anew(working: Any) -> None:
    reduce_upload(working, ping(working))
    request = registration("1")
    request.client_id = "2"  # a process that started later
    working.CLIENT_REGISTER(request, Context())
    header, sections = wire.unpack(ping(working, session="2").data)
    assert (header["unit"], header["attempt"], list(sections)) == (2, 2, ["global"])
    with pytest.raises(Aborted, match="ABORTED: another process has taken over executor 1"):
        ping(working)


def test_a_result_for_an_earlier_start_of_the_job_is_dropped(working: Any) -> None:
    reply = ping(working)
    reduce_upload(working, reply, job="an earlier one")
    assert working.board.faults() == {"results of an earlier start dropped": 1}
    reduce_upload(working, reply)
    assert working.board.faults() == {}


def test_a_unit_that_its_executor_could_not_do_fails(working: Any) -> None:
    reply = ping(working)
    again = reduce_upload(working, reply, failed="ValueError: x")
    header, sections = wire.unpack(again.data)
    assert (header["unit"], header["attempt"], list(sections)) == (1, 2, ["global"])  # did its state arrive? who knows


def test_an_executor_that_nobody_knows_is_asked_to_register(service: Any) -> None:
    with pytest.raises(Aborted, match="FAILED_PRECONDITION: register first"):
        ping(service)
    with pytest.raises(Aborted, match="FAILED_PRECONDITION: register first"):
        service.CLIENT_EXECUTE_COMPLETION(
            job_api_pb2.CompleteRequest(client_id="1", executor_id="1", event=ALIVE), Context()
        )
