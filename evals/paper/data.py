"""The data of a finished job."""

from pathlib import Path

from fedscale_ext.data.job_data import open_recorded_data
from fedscale_ext.data.store import DataSet
from fedscale_ext.util.reading import load_json


def data_set(log_dir: Path) -> DataSet:
    """What the job's clients held for training and for tests, as the job read it."""
    return open_recorded_data(load_json((log_dir / "header.json").read_text(encoding="utf-8"))["config"])
