"""An aggregator's service on a real port, and calls on it by friend and stranger."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import torch
from fedscale.cloud.channels import job_api_pb2, job_api_pb2_grpc

from fedscale_ext.config.job_config import JobConfig, load_config, with_values
from fedscale_ext.core.events import ignore_event
from fedscale_ext.entry.launch import prepare_process
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.transport import wire
from fedscale_ext.transport.executor_link import Connection
from fedscale_ext.util.code_digest import code_digest
from fedscale_ext.util.text_columns import pack_texts
from fedscale_ext.util.token import new_token

SERVICE = "/fedscale.JobService/"


def configuration(job_file: Path, *overrides: str) -> JobConfig:
    """A job of two executors with a token and a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    token = new_token(job_file.parent / "token")
    return load_config(job_file, ["num_executors=2", f"ps_port={port}", f"token_file={token}", *overrides])


@contextmanager
def serving(config: JobConfig) -> Iterator[Any]:
    """The service, listening; its board is empty, so that a ping would wait."""
    prepare_process(config)
    aggregator = FedAvgAggregator(config, ignore_event)
    try:
        aggregator.init_control_communication()
        yield aggregator
    finally:
        aggregator.farewell_s = 0.0
        aggregator.stop()


@contextmanager
def connection(config: JobConfig, rank: int = 1) -> Iterator[Any]:
    """The stub of an executor."""
    link = Connection(with_values(config, this_rank=rank))
    link.connect_to_server()
    try:
        yield link.stub
    finally:
        link.close_sever_connection()


@contextmanager
def stranger(config: JobConfig) -> Iterator[Any]:
    """FedScale's own stub, which signs nothing."""
    with grpc.insecure_channel(f"{config.fedscale.ps_ip}:{config.fedscale.ps_port}") as channel:
        yield job_api_pb2_grpc.JobServiceStub(channel)


def registration(executor: str = "1", **changes: Any) -> Any:
    """An executor's registration; ``changes`` replace its header's fields, its ``sizes`` or its ``names``."""
    names = changes.pop("names", pack_texts(["a", "b"]))
    sizes = changes.pop(
        "sizes",
        {
            "train": torch.tensor([3, 4]),
            "test": torch.tensor([1, 0]),
            "majority": torch.tensor([1, 0]),
            "most_frequent": torch.tensor([1, 0]),
        },
    )
    data = {"name": "d", "generated": True, "input_shape": [1, 28, 28], "num_classes": 4}
    data |= {"test_source": "a split", "test_only_clients": 0, "notes": []}
    header = {"digest": "d", "data": data, "device": "cpu", "device_name": "a processor"}
    header |= {"versions": {"torch": "2"}, "host": "here", "code": code_digest(FedAvgAggregator), **changes}
    info = wire.pack(header, {"sizes": wire.tensors_to_bytes(sizes), "names": wire.tensors_to_bytes(names)})
    return job_api_pb2.RegisterRequest(client_id=executor, executor_id=executor, executor_info=info)
