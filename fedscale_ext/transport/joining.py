"""How an executor without a number joins a running job: it asks, and the aggregator offers a number and the job.

The request is FedScale's registration under the number 0. The offer holds the job's settings as arguments, and what the
newcomer must have in common with the job: versions, code and data. Nothing of it is executed.
"""

import json
import re
import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import grpc
import numpy as np
import torch
from fedscale.cloud import commons
from fedscale.cloud.channels import job_api_pb2
from pydantic import ConfigDict, Field, TypeAdapter

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.transport import endpoint, wire
from fedscale_ext.transport.executor_link import PASSING, Connection
from fedscale_ext.transport.signing import JOINING
from fedscale_ext.util.package import VERSION
from fedscale_ext.util.validation import faults_raise

JOIN = "join"  # event of the reply that carries an offer
_ASK_S = 20.0  # longest wait for one reply; the aggregator answers within ten seconds
_SAME = "install the same version, since results depend on it"
_Text = Annotated[str, Field(max_length=1000)]
_Argument = Annotated[str, Field(max_length=65_536, pattern=r"^--[A-Za-z0-9_.]+=")]


@dataclass(frozen=True)
class Offer:
    """What an aggregator offers to a process that joins.

    Attributes:
        executor: The number that the process gets.
        job: The job's name.
        arguments: The job's settings as ``--key=value``, without those that each process has for itself.
        package: Version of fedscale_ext.
        torch: Version of torch.
        numpy: Version of NumPy.
        code: Digest of the code that the job runs (``util/code_digest.py``).
        data: Digest of the job's data; None if no executor has registered yet.

    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="forbid")

    executor: Annotated[int, Field(ge=1, lt=2**32)]
    job: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")]  # names a folder of this machine, too
    arguments: Annotated[list[_Argument], Field(max_length=2000)]
    package: _Text
    torch: _Text
    numpy: _Text
    code: _Text
    data: _Text | None

    def check_versions(self) -> None:
        """Raise UserError if this process has other versions than the job."""
        for name, here, there in (
            ("fedscale_ext", VERSION, self.package),
            ("torch", torch.__version__, self.torch),
            ("NumPy", np.__version__, self.numpy),
        ):
            if here != there:
                raise UserError(f"this machine has {name} {here} and job {self.job} runs with {there}: {_SAME}")

    def check_code(self, code: str, method: str) -> None:
        """Raise UserError if the digest of this machine's code is not that of the job."""
        if code != self.code:
            raise UserError(
                f"this machine has other code of fedscale_ext {VERSION} or of method {method} than job {self.job}: "
                "bring both to the same commit"
            )

    def check_data(self, digest: str, data_dir: str) -> None:
        """Raise UserError if the digest of this machine's data is not that of the job."""
        if self.data is not None and digest != self.data:
            raise UserError(
                f"{data_dir} holds other samples or clients than the data of job {self.job}: copy the job's data_dir "
                "anew, or name its copy with --data-dir"
            )


_OFFER = TypeAdapter(Offer)


def write_offer(executor: int, job: str, arguments: list[str], code: str, data: str | None) -> bytes:
    """Return the message of an offer; its versions are those of this process."""
    return wire.pack(
        {
            "executor": executor,
            "job": job,
            "arguments": arguments,
            "package": VERSION,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "code": code,
            "data": data,
        }
    )


def read_offer(message: bytes) -> Offer:
    """Read an offer; WireError if the message is none."""
    header, sections = wire.unpack(message)
    if sections:
        raise wire.WireError("an offer has no sections")
    with faults_raise(wire.WireError):
        offer = _OFFER.validate_json(json.dumps(header))
    return offer


def wanted_number(request: str) -> int | None:
    """The number that a process asks for in its ``client_id``; None if any will do."""
    match = re.fullmatch(rf"{JOIN} ([1-9][0-9]{{0,8}})", request)
    return int(match[1]) if match else None


def request_offer(config: JobConfig, wait_s: float, number: int | None = None) -> Offer:
    """Ask the aggregator at ``ps_ip`` and ``ps_port`` to let this process join, and return its offer.

    Args:
        config: Names the aggregator, the token and the certificates; its other settings are not used.
        wait_s: Longest wait in seconds for an aggregator that does not answer. One that answers, but whose job still
            waits for its own executors, is waited for as long as it does.
        number: The number that this process asks for: that of an executor which it replaces.

    Raises:
        UserError: If no aggregator answers, it refuses this process, its job is over, or its answer is no offer.

    """
    where = endpoint.address(config)
    connection = Connection(config, endpoint.joining_signer(config))
    connection.connect_to_server()
    try:
        while (reply := _ask(connection, where, wait_s, number)).event == commons.DUMMY_EVENT:
            pass  # the job waits for its own executors
    except ConnectionError as error:
        raise UserError(_refused(config, where, str(error))) from None
    finally:
        connection.close_sever_connection()
    if reply.event == commons.SHUT_DOWN:
        raise UserError(f"the job at {where} is over")
    try:
        return read_offer(reply.data)
    except wire.WireError as error:
        raise UserError(f"{where} answers as no aggregator of this version does: {one_line(str(error), 200)}") from None


def _ask(connection: Connection, where: str, wait_s: float, number: int | None) -> Any:
    wish = JOIN if number is None else f"{JOIN} {number}"
    request = job_api_pb2.RegisterRequest(client_id=wish, executor_id=str(JOINING))
    deadline = time.monotonic() + wait_s
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            return connection.stub.CLIENT_REGISTER(request, timeout=min(_ASK_S, left))
        except grpc.RpcError as error:
            code, details = error.code(), one_line(str(error.details()), 200)  # type: ignore[attr-defined]
            if code not in PASSING:
                raise UserError(f"{where} does not let this executor join: {details}") from None
            if time.monotonic() >= deadline:
                raise UserError(
                    f"no aggregator answered at {where} within {wait_s:g} s: correct the address (a loopback one joins "
                    "only jobs whose ps_ip is one), start the job, or give --tls-ca, --tls-cert and --tls-key if it "
                    f"uses TLS ({details})"
                ) from None
            if code == grpc.StatusCode.UNAVAILABLE:
                time.sleep(0.2)


def _refused(config: JobConfig, where: str, reason: str) -> str:
    if "token" not in reason:
        return reason
    token = config.job.token_file
    name = "no --token-file was given" if token is None else f"--token-file {token}"
    return f"{where} and this executor do not accept each other ({name}): {reason}"
