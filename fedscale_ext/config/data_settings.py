"""Settings that decide a job's clients and samples."""

from collections.abc import Mapping
from typing import Any

from fedscale_ext.config.job_config import set_aside


def data_settings(echo: Mapping[str, Any]) -> dict[str, Any]:
    """Return what clients' data are opened with; jobs with equal settings have the same data, if files are the same.

    ``echo`` is that of :meth:`JobConfig.echo` or header.json. ``public_draw`` are the number, classes and alpha of
    public samples; None where the clients keep all of theirs.

    Where an earlier release recorded no ``data_seed``, the job's ``seed`` decided what that does.

    Raises:
        KeyError: If ``echo`` is not that of a job.

    """
    shape = echo.get("sample_shape")
    public_draw = (echo["public_samples"], echo["public_classes"], echo["public_alpha"]) if set_aside(echo) else None
    return {
        "data_dir": echo["data_dir"],
        "data_set": echo["data_set"],
        "data_map_file": echo.get("data_map_file"),
        "test_split": echo["test_split"],
        "seed": echo["data_seed"] if "data_seed" in echo else echo["seed"],
        "input_shape": None if shape is None else tuple(shape),
        "public_draw": public_draw,
    }
