"""What header.json tells of an earlier run of a job, with which one that continues it is compared."""

from pathlib import Path
from typing import Any

from pydantic import AliasPath, BaseModel, Field

from fedscale_ext.metrics.job_folder.file_names import HEADER
from fedscale_ext.util.reading import MEGA, read_json


class EarlierRun(BaseModel):
    """Parts of header.json (job_folder/header.py), empty where it cannot be read or an earlier release wrote none."""

    config: dict[str, Any] = {}
    named_files: dict[str, dict[str, str]] = {}
    data_digest: str | None = Field(default=None, validation_alias=AliasPath("data", "digest"))


def earlier_run(folder: Path) -> EarlierRun:
    """Read what the header.json of a run's folder states."""
    try:
        return EarlierRun.model_validate(read_json(folder / HEADER, 1024 * MEGA))
    except (OSError, ValueError):
        return EarlierRun()
