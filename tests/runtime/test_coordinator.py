"""What the service does with messages that no executor of ours would send."""

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2
from served import registration

from fedscale_ext.config import load_config
from fedscale_ext.errors import UserError
from fedscale_ext.methods.fedavg import FedAvgAggregator
from fedscale_ext.runtime import wire
from fedscale_ext.runtime.board import Unit
from fedscale_ext.runtime.events import ignore_event
from fedscale_ext.runtime.launch import prepare_process
from fedscale_ext.runtime.results import usable


class Aborted(Exception):
    pass


class Context:
    def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(details)


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
        registration("3"),
        registration("0"),
        registration(versions=3),
        registration(versions={}),
        registration(device="tpu"),
        registration(device="cpu\n"),
        registration(data={}),
        registration(digest=["d"]),
        registration(digest="d" * 10_000),
        registration(sizes={"train": torch.zeros(0, dtype=torch.int64), "test": torch.zeros(0, dtype=torch.int64)}),
        registration(sizes={"train": torch.tensor([3, 2**62]), "test": torch.tensor([1, 0])}),
        registration(sizes={"train": torch.tensor([3])}),
        registration(sizes={"train": torch.tensor([3, -4]), "test": torch.tensor([1, 0])}),
        registration(sizes={"train": torch.tensor([3, 4]), "test": torch.tensor([1])}),
        registration(sizes={"train": torch.tensor([3.5, 4]), "test": torch.tensor([1, 0])}),
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
    assert service.wait_for_executors().train_sizes.tolist() == [3, 4]
    service.CLIENT_REGISTER(registration("2", digest="other"), Context())
    with pytest.raises(UserError, match="different data"):
        service.wait_for_executors()


def test_missing_executors_are_named_after_a_bounded_wait(job_file: Path) -> None:
    config = load_config(job_file, ["num_executors=2", "register_timeout_s=0.2"])
    prepare_process(config)
    aggregator = FedAvgAggregator(config, ignore_event)
    aggregator.executors = [0, 1]
    aggregator.CLIENT_REGISTER(registration("1"), Context())
    with pytest.raises(UserError, match="only 1 of 2 executors"):
        aggregator.wait_for_executors()


def test_a_result_for_no_unit_is_dropped(service: Any) -> None:
    service.CLIENT_REGISTER(registration(), Context())
    service.board.close()
    result = wire.pack({"unit": 99, "results": []})
    reply = service.CLIENT_EXECUTE_COMPLETION(
        job_api_pb2.CompleteRequest(executor_id="1", event=commons.UPLOAD_MODEL, data_result=result), Context()
    )
    assert reply.event == commons.SHUT_DOWN
    assert service.board.dropped == 1


def hand_in(service: Any, unit: int, executor: str = "1", sections: Any = None, **header: Any) -> Any:
    result = wire.pack({"unit": unit, **header}, sections)
    return service.CLIENT_EXECUTE_COMPLETION(
        job_api_pb2.CompleteRequest(executor_id=executor, event=commons.UPLOAD_MODEL, data_result=result), Context()
    )


def posted(service: Any, *units: Any) -> Any:
    """Results of units, waited for in a thread; the executor 1 is registered and holds the first one."""
    service.CLIENT_REGISTER(registration(), Context())
    waiting = futures.ThreadPoolExecutor(1).submit(lambda: list(service.board.run(units, 10.0)))
    assert service.board.take("1", 10.0) == units[0]
    return waiting


def test_a_malformed_result_of_training_fails_its_clients(service: Any) -> None:
    unit = Unit(1, commons.CLIENT_TRAIN, {"items": [{"client": 1}, {"client": 2}], "sum": True}, ())
    results = posted(service, unit)
    threading.Timer(0.0, lambda: results.result() and service.board.close()).start()
    hand_in(service, 1, results=[{"client": [1]}])
    ((header, sections),) = results.result(10.0)
    assert [result["client"] for result in header["results"]] == [1, 2]
    assert all("was refused" in result["failed"] for result in header["results"])
    assert not sections
    assert service.refusals.counts() == {"not the result of its unit": 1}


def test_a_malformed_result_of_a_test_is_asked_for_once_more(service: Any) -> None:
    unit = Unit(1, commons.MODEL_TEST, {"clients": [1]}, ())
    results = posted(service, unit)
    reply = hand_in(service, 1)
    assert wire.unpack(reply.data)[0]["clients"] == [1]  # the same unit
    threading.Timer(0.0, lambda: results.result() and service.board.close()).start()
    hand_in(service, 1)
    ((header, _),) = results.result(10.0)
    with pytest.raises(UserError, match="neither tested nor measured"):
        usable((header, {}))
    assert service.refusals.counts() == {"not the result of its unit": 2}


@pytest.mark.parametrize("unit", [None, "1", 1.5, True, [1]])
def test_a_result_that_names_no_unit_is_refused(service: Any, unit: Any) -> None:
    service.CLIENT_REGISTER(registration(), Context())
    with pytest.raises(Aborted, match="names no unit"):
        hand_in(service, unit)


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
