"""The folder of a data set: whether it is there, and how to get one."""

import os
from pathlib import Path

from fedscale_ext.config.presets import how_to_get
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.registry import GENERATED_SETS

CSV_FOLDER = "client_data_mapping"  # FedScale's name of the folder in a data folder that holds train.csv and test.csv


def ways_out(data_set: str | None = None) -> str:
    """Say how to get data of ``data_set``, which may be imported or generated; None: of any data set."""
    real = "get real data with `fedscale dataset import …`"
    if data_set is None or data_set in GENERATED_SETS:
        return f"{real} or generated data with `fedscale dataset synthesize {data_set or GENERATED_SETS[0]}`"
    return f"{real}, or set data_set to {' or '.join(GENERATED_SETS)}, which `fedscale dataset synthesize` generates"


def data_folder(data_dir: str | os.PathLike[str], data_set: str | None = None) -> Path:
    """Return the folder of a data set; UserError names the ways to get one, for ``data_set`` or, if None, for any."""
    folder = Path(data_dir).expanduser()
    if not folder.is_dir():
        generated = folder.with_name(f"{folder.name}_generated")
        there = f"--set data_dir={generated} takes the generated data that are there, or " if generated.is_dir() else ""
        raise UserError(f"the data folder {folder} does not exist: {there}{how_to_get(folder) or ways_out(data_set)}")
    if not (folder / CSV_FOLDER).is_dir():
        raise UserError(f"{folder} holds no data set, its folder {CSV_FOLDER} is missing: {ways_out(data_set)}")
    return folder
