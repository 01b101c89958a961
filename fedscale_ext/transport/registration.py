"""The message with which an executor registers: its code, device, versions and data, checked before use."""

import platform
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.data.majority import disjoint_note, majority_correct, most_frequent_correct
from fedscale_ext.data.store import DataSet
from fedscale_ext.transport import wire
from fedscale_ext.util.text_columns import pack_texts, unpack_texts
from fedscale_ext.util.validation import faults_raise

_MAX_CLIENTS = 100_000_000
_MAX_SAMPLES = 2**40  # of one client
_MAX_NAME = 65_536  # characters, as a row of train.csv
_Name = Annotated[str, Field(max_length=1000)]
_Side = Annotated[int, Field(ge=1, le=65536)]


class _Data(BaseModel):
    model_config = ConfigDict(strict=True)

    name: _Name
    generated: bool
    input_shape: Annotated[list[_Side], Field(min_length=3, max_length=3)]  # channels, height, width
    num_classes: int = Field(ge=1, le=1_000_000)
    test_source: _Name
    test_only_clients: int = Field(ge=0)
    notes: Annotated[list[_Name], Field(max_length=100)]  # changes made to the samples, a sentence each


class _Report(BaseModel):
    model_config = ConfigDict(strict=True)

    code: _Name
    digest: _Name
    data: _Data
    device: str = Field(pattern=r"^(cpu|cuda(:[0-9]{1,4})?)$")
    device_name: _Name
    host: _Name = ""
    versions: Annotated[dict[_Name, _Name], Field(max_length=100)]


@dataclass(frozen=True)
class ExecutorInfo:
    """What an executor reported at registration. Columns are indexed by client - 1.

    Attributes:
        code: Digest of the code that it runs (``util/code_digest.py``).
        digest: Digest of its data.
        data: Description of the data: name, shapes, number of classes, notes.
        device: Its torch device, cpu or cuda:N.
        device_name: Name of the hardware.
        host: Name of its machine.
        versions: Versions of its libraries.
        train_sizes: Number of training samples, int64 [clients].
        test_sizes: Number of test samples, int64 [clients].
        client_names: Names of the clients in the data.
        majority_correct: Number of test samples with the client's most frequent training label, int64 [clients].
        most_frequent_correct: Number of test samples with the most frequent training label of all clients, int64
            [clients].

    """

    code: str
    digest: str
    data: dict[str, Any]
    device: str
    device_name: str
    host: str
    versions: dict[str, str]
    train_sizes: np.ndarray
    test_sizes: np.ndarray
    client_names: list[str]
    majority_correct: np.ndarray
    most_frequent_correct: np.ndarray

    def same_data(self, other: "ExecutorInfo") -> bool:
        """Return whether two executors hold the same samples of the same clients, by digest and names."""
        return self.digest == other.digest and self.client_names == other.client_names


def registration(data: DataSet, device: torch.device, code: str) -> bytes:
    """Return the registration of an executor that has opened ``data``, trains on ``device`` and runs ``code``."""
    header = {
        "code": code,
        "device": str(device),
        "device_name": _device_name(device),
        "host": platform.node(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "digest": data.digest,
        "data": {
            "name": data.name,
            "generated": data.generated,
            "input_shape": list(data.input_shape),
            "num_classes": data.num_classes,
            "test_source": data.test_source,
            "test_only_clients": data.test_only_clients,
            "notes": [*data.notes, *([note] if (note := disjoint_note(data)) else [])],
        },
    }
    columns = {
        "train": data.train_sizes,
        "test": data.test_sizes,
        "majority": majority_correct(data),
        "most_frequent": most_frequent_correct(data),
    }
    sizes = {name: torch.from_numpy(column) for name, column in columns.items()}
    names = pack_texts(data.client_names)
    return wire.pack(header, {"sizes": wire.tensors_to_bytes(sizes), "names": wire.tensors_to_bytes(names)})


def _device_name(device: torch.device) -> str:
    """Return the hardware that the speed of training depends on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def read_registration(message: bytes) -> ExecutorInfo:
    """Read a registration.

    Args:
        message: The message's bytes.

    Returns:
        The executor's report.

    Raises:
        WireError: If the message is no valid registration.

    """
    header, sections = wire.unpack(message)
    if sections.keys() != {"sizes", "names"}:
        raise wire.WireError("a registration has two sections, sizes and names")
    train, test, majority, most_frequent = _sizes(sections["sizes"])
    names = _names(sections["names"], len(train))
    with faults_raise(wire.WireError):
        report = _Report.model_validate(header)
    if "torch" not in report.versions:
        raise wire.WireError("versions lacks torch")
    return ExecutorInfo(
        **report.model_dump(), train_sizes=train, test_sizes=test, client_names=names, majority_correct=majority,
        most_frequent_correct=most_frequent,
    )  # fmt: skip


def other_code(config: JobConfig) -> str:
    """Say what to do about an executor whose code is not that of the aggregator."""
    return (
        f"this executor's fedscale_ext, method {config.job.method}, torch or NumPy differs from that of job "
        f"{config.fedscale.job_name}; install the job's version, or end the job and start it again with --resume"
    )


def _names(section: wire.Section, clients: int) -> list[str]:
    """Read the names of the clients, which must be distinct."""
    tensors = wire.bytes_to_tensors(section)
    if tensors.keys() != {"bytes", "offsets"} or tensors["offsets"].shape != (clients + 1,):
        raise wire.WireError("names of clients are not as many as the clients")
    try:
        names = unpack_texts(tensors["bytes"], tensors["offsets"])
    except ValueError as error:
        raise wire.WireError(f"names of clients: {error}") from None
    if len(set(names)) < clients or not all(0 < len(name) <= _MAX_NAME for name in names):
        raise wire.WireError("a client's name is empty, too long, or another one's too")
    return names


def _sizes(section: wire.Section) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read four columns int64 [clients]: training samples, test samples, and of the latter two counts.

    These are the test samples with the client's own most frequent training label, and with that of all clients.
    """
    names = ("train", "test", "majority", "most_frequent")
    train, test, majority, most_frequent = wire.columns(section, names, torch.int64)
    if not 0 < len(train) <= _MAX_CLIENTS:
        raise wire.WireError(f"a registration of {len(train)} clients")
    for sizes in (train, test):
        if (sizes < 0).any() or (sizes > _MAX_SAMPLES).any():
            raise wire.WireError("a client's count of samples is out of range")
    for correct in (majority, most_frequent):
        if (correct < 0).any() or (correct > test).any():
            raise wire.WireError("a client's count of most frequent labels is out of range")
    return train, test, majority, most_frequent
