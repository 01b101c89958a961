"""header.json: what a job is, from before its first round on. summary.json begins with the same fields."""

import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Annotated, Any, NotRequired

import numpy as np
import torch
from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic reads that of typing from Python 3.12 on

from fedscale_ext.config.job_config import set_aside
from fedscale_ext.data.named_files import FileDigests
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.util.commit import commit
from fedscale_ext.util.package import VERSION

Name = Annotated[str, Field(min_length=1, max_length=1000)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RecordedSettings(TypedDict):
    """The job's whole configuration with its defaults; these keys are in that of every release."""

    rounds: Annotated[int, Field(ge=1)]
    data_set: Name
    model: Name


class RecordedData(TypedDict):
    """The clients' data set."""

    name: Name
    generated: bool
    digest: str
    public_samples: NotRequired[Count]  # training samples taken from the clients; only where public data are configured
    public_data_used: NotRequired[bool]  # whether the method uses them


class FloorFigures(TypedDict):
    """Accuracy over clients without a model, in [0, 1]; None where no client was tested."""

    mean: Figure | None
    iqr: Figure | None
    sample_weighted: Figure | None
    tested: Count  # clients


class Floors(TypedDict):
    """Accuracies of clients that predict one label, without a model (:func:`fedscale_ext.metrics.summary.floors`)."""

    majority: FloorFigures
    most_frequent: NotRequired[FloorFigures | None]


class JobHeader(TypedDict):
    """Description of a job. Earlier releases did not write the fields that are not required."""

    job_name: Name
    method: Name
    params: dict[str, Any]  # the method's hyperparameters
    seed: Count
    data: RecordedData
    population: str  # source of the devices: "traced: …" or "resampled …"
    num_clients: Count
    beyond_capacity: NotRequired[Count]  # clients that train a model that their devices do not afford
    floor: NotRequired[Floors | None]
    notices: NotRequired[list[str]]  # sentences that the job gave before its first round
    versions: dict[str, str]  # see versions()
    device: NotRequired[str]  # what executors compute on, which decides how numbers are rounded
    config: RecordedSettings
    named_files: NotRequired[dict[str, dict[str, str]]]  # digests of the files that the configuration names


_HEADER = TypeAdapter(JobHeader)


def floor_figures(header: JobHeader) -> dict[str, FloorFigures]:
    """Return the recorded accuracies without a model, by kind of guess."""
    floors = header.get("floor")
    if floors is None:
        return {}
    by_kind = {"majority": floors["majority"], "most_frequent": floors.get("most_frequent")}
    return {kind: figures for kind, figures in by_kind.items() if figures is not None}


def check_header(content: Any) -> None:
    """Raise pydantic's ValidationError where JSON values, of header.json or summary.json, do not describe a job."""
    _HEADER.validate_python(content, strict=True)


def versions() -> dict[str, str]:
    """Versions of what decides a result, the commit and the platform; "absent" for what is not known."""
    try:
        fedscale = metadata.version("fedscale")
    except metadata.PackageNotFoundError:
        fedscale = "absent"
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "fedscale": fedscale,
        "fedscale_ext": VERSION,
        "commit": commit(),
        "platform": platform.platform(),
    }


def job_header(
    *,
    job_name: str,
    method: str,
    params: Any,
    config: Mapping[str, Any],
    seed: int,
    data_name: str,
    data_generated: bool,
    data_digest: str,
    population: str,
    num_clients: int,
    public_data_used: bool = False,
    floor: Floors | None = None,
    notices: Sequence[str] = (),
    named_files: FileDigests | None = None,
    beyond_capacity: int = 0,
    device: str = "absent",
) -> JobHeader:
    """Description of a job for header.json and the head of summary.json.

    ``params`` are a dataclass or mapping. Other arguments are the fields of :class:`JobHeader` and its ``data``.
    """
    data: RecordedData = {"name": data_name, "generated": data_generated, "digest": data_digest}
    if (samples := set_aside(config)) or config.get("public_dir"):
        data["public_samples"] = samples
        data["public_data_used"] = public_data_used
    return {
        "job_name": job_name,
        "method": method,
        "params": plain(params),
        "seed": seed,
        "data": data,
        "population": population,
        "num_clients": num_clients,
        "beyond_capacity": beyond_capacity,
        "floor": floor,
        "notices": list(notices),
        "versions": versions(),
        "device": device,
        "config": plain(config),
        "named_files": plain(named_files or {}),
    }
