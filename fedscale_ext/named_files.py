"""The files that a job's settings name: their contents decide its result as the settings do.

What the data digest covers (``data_dir`` and its csv files) is left out.
"""

import hashlib
from pathlib import Path
from typing import Any

from fedscale_ext.config import JobConfig
from fedscale_ext.population.population import RESAMPLED
from fedscale_ext.reading import MEGA

_SPEC = ".json"  # of a file that describes a model


def file_digests(config: JobConfig) -> dict[str, str]:
    """Key -> sha256 (hexadecimal) of the file that it names, one key an entry of a list of models.

    Files that do not exist are left out: whoever reads them says so.
    """
    named: dict[str, Any] = {
        "device_conf_file": config.fedscale.device_conf_file,
        "device_avail_file": config.fedscale.device_avail_file,
        "initial_weights": config.job.initial_weights,
    }
    models: dict[str, Any] = {"model": config.fedscale.model, "capacity_model": config.job.capacity_model}
    for name, value in config.method_params().items():
        for index, entry in enumerate(value if isinstance(value, list) else ()):
            models[f"{config.job.method}.{name}[{index}]"] = entry
    named |= {key: name for key, name in models.items() if isinstance(name, str) and name.endswith(_SPEC)}
    paths = {key: Path(name).expanduser() for key, name in named.items() if name not in (None, RESAMPLED)}
    return {key: _sha256(path) for key, path in paths.items() if path.is_file()}


def changed_files(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Keys whose files have other contents now."""
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(4 * MEGA):
            digest.update(block)
    return digest.hexdigest()
