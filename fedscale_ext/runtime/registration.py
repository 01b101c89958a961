"""What an executor says of itself and its data when it registers, checked before anything is done with it."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedscale_ext.runtime import wire
from fedscale_ext.validation import first_fault

_MOST_CLIENTS = 100_000_000
_MOST_SAMPLES = 2**40  # of one client
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


class _Report(BaseModel):
    model_config = ConfigDict(strict=True)

    digest: _Name
    data: _Data
    device: str = Field(pattern=r"^(cpu|cuda(:[0-9]{1,4})?)$")
    device_name: _Name
    versions: Annotated[dict[_Name, _Name], Field(max_length=100)]


@dataclass(frozen=True)
class ExecutorInfo:
    """What an executor reported at registration; sizes are samples per client, indexed by client - 1."""

    digest: str
    data: dict[str, Any]
    device: str
    device_name: str
    versions: dict[str, str]
    train_sizes: np.ndarray
    test_sizes: np.ndarray


def read_registration(message: bytes) -> ExecutorInfo:
    """The registration in a message's bytes; WireError where it cannot be one."""
    header, sections = wire.unpack(message)
    if sections.keys() != {"sizes"}:
        raise wire.WireError("a registration has one section, sizes")
    train, test = _sizes(sections["sizes"])
    try:
        report = _Report.model_validate(header)
    except ValidationError as error:
        key, _, requirement = first_fault(error)
        raise wire.WireError(f"{key}: {requirement}") from None
    if "torch" not in report.versions:
        raise wire.WireError("versions lacks torch")
    return ExecutorInfo(**report.model_dump(), train_sizes=train, test_sizes=test)


def _sizes(section: wire.Section) -> tuple[np.ndarray, np.ndarray]:
    """Training and test samples of each client, int64 [clients]."""
    train, test = wire.columns(section, ("train", "test"), torch.int64)
    if not 0 < len(train) <= _MOST_CLIENTS:
        raise wire.WireError(f"a registration of {len(train)} clients")
    for sizes in (train, test):
        if (sizes < 0).any() or (sizes > _MOST_SAMPLES).any():
            raise wire.WireError("a client's count of samples is out of range")
    return train, test
