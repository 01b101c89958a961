"""The data of a finished job."""

from pathlib import Path

from fedscale_ext.data.store import DataSet, open_data_set
from fedscale_ext.util.reading import load_json


def data_set(log_dir: Path) -> DataSet:
    """What the job's clients held for training and for tests, as the job read it, where it set no public samples
    aside. Where a job records no ``data_seed``, its ``seed`` decided that."""
    config = load_json((log_dir / "header.json").read_text(encoding="utf-8"))["config"]
    shape = config["sample_shape"]
    return open_data_set(
        config["data_dir"],
        config["data_set"],
        data_map_file=config["data_map_file"],
        test_split=config["test_split"],
        seed=config.get("data_seed", config["seed"]),
        input_shape=None if shape is None else tuple(shape),
    )
