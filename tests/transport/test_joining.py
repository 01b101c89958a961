"""What a process that joins asks, what it is offered, and what it refuses."""

import socket
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from aggregator_service import configuration, connection, registration, serving

from fedscale_ext.config.job_config import JobConfig, with_values
from fedscale_ext.core.errors import JobFailed, UserError
from fedscale_ext.transport import wire
from fedscale_ext.transport.joining import Offer, read_offer, request_offer, wanted_number, write_offer
from fedscale_ext.transport.signing import JOINING
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.package import VERSION
from fedscale_ext.util.token import new_token

ARGUMENTS = ["--rounds=3", "--fedtrans.alpha=[1, 2]"]


def offer(**changes: Any) -> Offer:
    fields: dict[str, Any] = {"executor": 3, "job": "job", "arguments": ARGUMENTS, "code": "c", "data": "d"}
    versions: dict[str, Any] = {"package": VERSION, "torch": torch.__version__, "numpy": np.__version__}
    return Offer(**{**fields, **versions, **changes})


def test_an_offer_arrives_as_it_was_written() -> None:
    assert read_offer(write_offer(3, "job", ARGUMENTS, "c", "d")) == offer()
    assert read_offer(write_offer(3, "job", ARGUMENTS, "c", None)).data is None


@pytest.mark.parametrize(
    "change",
    [
        {"executor": 0},
        {"executor": "3"},
        {"executor": 2**32},
        {"job": "../job"},
        {"job": "/etc"},
        {"job": "job\n"},
        {"arguments": "--rounds=3"},
        {"arguments": ["rounds=3"]},
        {"arguments": ["--rounds"]},
        {"arguments": ["--a b=3"]},
        {"arguments": ["--a=3"] * 2001},
        {"package": None},
        {"code": 3},
        {"data": "d" * 1001},
        {"more": 1},
    ],
)
def test_an_offer_that_cannot_be_right_is_refused(change: dict[str, Any]) -> None:
    header, _ = wire.unpack(write_offer(3, "job", ARGUMENTS, "c", "d"))
    with pytest.raises(wire.WireError):
        read_offer(wire.pack({**header, **change}))


def test_an_offer_with_sections_is_refused() -> None:
    header, _ = wire.unpack(write_offer(3, "job", ARGUMENTS, "c", "d"))
    with pytest.raises(wire.WireError, match="no sections"):
        read_offer(wire.pack(header, {"a": b"a"}))


@pytest.mark.parametrize(("field", "name"), [("package", "fedscale_ext"), ("torch", "torch"), ("numpy", "NumPy")])
def test_other_versions_are_named(field: str, name: str) -> None:
    offer().check_versions()
    with pytest.raises(UserError, match=rf"has {name} \S+ and job job runs with 0.0: install the same version"):
        offer(**{field: "0.0"}).check_versions()


def test_other_code_and_other_data_are_named() -> None:
    offer().check_code("c", "fedavg")
    with pytest.raises(UserError, match=r"other code of fedscale_ext .* or of method fedavg than job job"):
        offer().check_code("x", "fedavg")
    offer().check_data("d", "here")
    offer(data=None).check_data("x", "here")
    with pytest.raises(UserError, match="here holds other samples or clients than the data of job job: copy"):
        offer().check_data("x", "here")


# ---- the running service ----


def asking(config: JobConfig, **values: Any) -> JobConfig:
    """The configuration of one that knows the address and the token only."""
    return with_values(config, this_rank=JOINING, job_name="unknown", **values)


def agreed(service: Any) -> Any:
    """The service of a job that has begun."""
    for executor in ("1", "2"):
        with connection(service.config, int(executor)) as stub:
            stub.CLIENT_REGISTER(registration(executor), wait_for_ready=True, timeout=10.0)
    service.wait_for_executors()
    return service


def test_each_that_asks_gets_a_number_of_its_own_and_the_jobs_settings(service: Any, config: JobConfig) -> None:
    agreed(service)
    offers = [request_offer(asking(config), 10.0) for _ in range(2)]
    assert [each.executor for each in offers] == [3, 4]
    assert (offers[0].job, offers[0].code, offers[0].data) == ("tiny", service.executor_code, "d")
    offers[0].check_versions()
    keys = {argument[2:].partition("=")[0] for argument in offers[0].arguments}
    assert {"data_dir", "method", "job_name", "local_steps"} <= keys
    assert not keys & {"token_file", "log_path", "ps_ip", "ps_port", "wandb_token", "num_executors"}
    with connection(config, 4) as stub:
        stub.CLIENT_REGISTER(registration("4"), wait_for_ready=True, timeout=10.0)
    assert service.infos.keys() == {"1", "2", "4"}


def test_a_number_that_somebody_has_is_not_given_again(service: Any, config: JobConfig) -> None:
    agreed(service)
    with connection(config, 3) as stub:  # it joined before the aggregator was started again
        stub.CLIENT_REGISTER(registration("3"), wait_for_ready=True, timeout=10.0)
    assert request_offer(asking(config), 10.0).executor == 4


def test_nobody_joins_before_the_jobs_own_executors_are_there(
    service: Any, config: JobConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscale_ext.server.grpc_server._PING_WAIT_S", 0.0)
    replies = []
    plain = type(service)._offer

    def reply(self: Any, number: int | None) -> Any:
        replies.append(plain(self, number).event)
        agreed(self)
        return plain(self, number)

    monkeypatch.setattr(type(service), "_offer", reply)
    assert request_offer(asking(config), 10.0).executor == 3
    assert replies == ["dummy_event"]


def test_a_job_without_executors_of_its_own_takes_the_first_at_once(job_file: Path) -> None:
    config = configuration(job_file, "num_executors=0", "data_dir=nowhere")
    with serving(config) as service:
        service.read_local_data()
        first = request_offer(asking(config), 10.0)
        assert (first.executor, first.data) == (1, None)
        with connection(config, 1) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        assert service.wait_for_executors().digest == "d"


def test_executors_that_join_must_have_the_data_of_the_aggregators_machine(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscale_ext.server.grpc_server.local_digest", lambda config: "e")
    config = configuration(job_file, "num_executors=0")
    with serving(config) as service:
        service.read_local_data()
        first = request_offer(asking(config), 10.0)
        assert first.data == "e"
        with pytest.raises(UserError, match="here holds other samples or clients"):
            first.check_data("d", "here")
        with connection(config, 1) as stub:
            with pytest.raises(grpc.RpcError, match="make data_dir hold the same files"):
                stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
            stub.CLIENT_REGISTER(registration("1", digest="e"), wait_for_ready=True, timeout=10.0)
        assert service.wait_for_executors().digest == "e"


def test_whoever_asks_while_the_data_are_read_waits(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.server.grpc_server._PING_WAIT_S", 0.0)
    config = configuration(job_file, "num_executors=0")
    with serving(config) as service:
        assert service._offer(None).event == "dummy_event"
        service.read_local_data()
        assert service._offer(None).event == "join"


def test_data_of_a_first_executor_that_are_not_those_here_end_the_job(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscale_ext.server.grpc_server.local_digest", lambda config: "e")
    config = configuration(job_file, "num_executors=0")
    with serving(config) as service:
        with connection(config, 1) as stub:  # of an earlier start of the aggregator: it registers without an offer
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        with pytest.raises(UserError, match="the executors read different data"):
            service.wait_for_executors()


def test_a_resumed_job_without_data_here_takes_only_those_of_its_run(job_file: Path) -> None:
    config = configuration(job_file, "num_executors=0", "data_dir=nowhere", "resume=True")
    with serving(config) as service:
        write_atomic(service.log_dir / "header.json", '{"data": {"digest": "e"}}')
        service.read_local_data()
        assert (request_offer(asking(config), 10.0).data, service.local_digest) == ("e", None)
        with connection(config, 1) as stub:
            with pytest.raises(grpc.RpcError, match="make data_dir hold the same files"):
                stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
            stub.CLIENT_REGISTER(registration("1", digest="e"), wait_for_ready=True, timeout=10.0)
        assert service.wait_for_executors().digest == "e"


@pytest.mark.parametrize("header", ["", "[]", '{"data": {"digest": 3}}'])
def test_a_run_whose_header_names_no_data_takes_any(job_file: Path, header: str) -> None:
    config = configuration(job_file, "num_executors=0", "data_dir=nowhere", "resume=True")
    with serving(config) as service:
        write_atomic(service.log_dir / "header.json", header)
        service.read_local_data()
        assert request_offer(asking(config), 10.0).data is None


def test_a_job_with_executors_does_not_open_the_data(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.server.grpc_server.local_digest", lambda config: pytest.fail("opened"))
    with serving(configuration(job_file)) as service:
        assert agreed(service).local_digest is None


def test_a_job_that_only_strangers_asked_to_join_names_why_they_were_refused(job_file: Path, tmp_path: Path) -> None:
    config = configuration(job_file, "num_executors=0", "register_timeout_s=0.05")
    with serving(config) as service:
        with pytest.raises(UserError, match="do not accept each other"):
            request_offer(asking(config, token_file=str(new_token(tmp_path / "other"))), 10.0)
        sentence = r"joined within 0.05 s \(messages were refused: signed with another token\): raise"
        with pytest.raises(UserError, match=sentence):
            service.wait_for_executors()


def test_the_last_executor_is_told_to_be_lost_though_nobody_calls_any_more(job_file: Path) -> None:
    config = configuration(job_file, "num_executors=0", "lease_s=0.5", "replacement_s=1.0")
    with serving(config) as service:
        events: list[Any] = []
        service.emit, service.round = events.append, 1
        with connection(config, 1) as stub:
            stub.CLIENT_REGISTER(registration("1"), wait_for_ready=True, timeout=10.0)
        with pytest.raises(
            JobFailed, match=r"no executor is left to do them: executor 1 was last heard of [0-9]+ s ago"
        ):
            list(service.run_units([service.make_unit("train", [])]))
        last = events[-1]
        assert (last["event"], last["executors"], last["replacement_s"]) == ("executors", [], 1.0)
        assert [line["executor"] for line in last["lost"]] == ["1"] and last["lost"][0]["lost_at"] > 0


def test_a_number_is_given_to_who_asks_for_it_unless_another_one_has_it(job_file: Path) -> None:
    config = configuration(job_file, "num_executors=0")
    with serving(config) as service:
        service.read_local_data()
        numbers = [request_offer(asking(config), 10.0, number).executor for number in (None, 2, 2, None)]
        assert numbers == [1, 2, 2, 3]  # who asks again takes the place of who had asked before
        service.infos["1"] = service.infos["7"] = None  # they joined under their own numbers
        assert [request_offer(asking(config), 10.0, number).executor for number in (1, 7, 5, 6)] == [4, 5, 6, 8]


@pytest.mark.parametrize("request_", ["join", "join 0", "join -1", "join 1x", "join 9999999999", "join  3", ""])
def test_what_is_no_number_is_no_wish(request_: str) -> None:
    assert wanted_number(request_) is None


def test_a_job_that_nobody_joins_ends_with_a_sentence(job_file: Path) -> None:
    config = configuration(job_file, "num_executors=0", "register_timeout_s=0.05")
    sentence = r"no executor joined within 0.05 s: raise register_timeout_s"
    with serving(config) as service, pytest.raises(UserError, match=sentence):
        service.wait_for_executors()


def test_a_wrong_token_is_named(service: Any, config: JobConfig, tmp_path: Path) -> None:
    other = new_token(tmp_path / "other")
    with pytest.raises(UserError, match=rf"do not accept each other \(--token-file {other}\)"):
        request_offer(asking(config, token_file=str(other)), 10.0)
    with pytest.raises(UserError, match=r"do not accept each other \(no --token-file was given\)"):
        request_offer(asking(config, token_file=None), 10.0)
    assert service.refusals.counts() == {"signed with another token": 2}


def test_a_job_that_is_over_is_named(service: Any, config: JobConfig) -> None:
    service.board.close()
    with pytest.raises(UserError, match=r"^the job at 127.0.0.1:\d+ is over$"):
        request_offer(asking(config), 10.0)


def test_an_address_where_nobody_listens_is_named(config: JobConfig) -> None:
    with pytest.raises(UserError, match=r"^no aggregator answered at 127.0.0.1:\d+ within 0.2 s: correct the address"):
        request_offer(asking(config), 0.2)


def test_a_server_of_another_kind_is_named(config: JobConfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        other = asking(config, ps_port=mute.getsockname()[1])
        with pytest.raises(UserError, match="no aggregator answered at"):
            request_offer(other, 0.2)
