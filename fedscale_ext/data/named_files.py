"""Digests of the files that settings name: their contents decide a job's result as the settings themselves do.

The aggregator writes them into header.json and checkpoints. A resumed job and a report compare them. The clients'
samples have a digest of their own (data/store.py).
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.cache import FOLDER as CACHE
from fedscale_ext.data.initial_weights_file import weights_file
from fedscale_ext.util.reading import open_plain

#: key -> path as the setting has it -> sha256 of the file in hexadecimal digits
FileDigests = Mapping[str, Mapping[str, str]]

_WEIGHTS = "initial_weights"
_SPEC = ".json"  # of a file that describes a model


def digest_of(path: Path) -> str:
    """Digest a file, or a folder of data; OSError where it cannot be read."""
    return _folder_digest(path) if path.is_dir() else _sha256(path)


def file_digests(config: JobConfig, digest: Callable[[Path], str] = digest_of) -> dict[str, dict[str, str]]:
    """Digest the files on this machine that the settings of a job name, and the folder of public data.

    What cannot be read is left out: the code that needs it says what is wrong. ``digest`` may keep what it has read.
    """
    digests: dict[str, dict[str, str]] = {}
    for key, path in _named_files(config):
        try:
            file = weights_file(path, fetch=False) if key == _WEIGHTS else Path(path).expanduser()
            digests.setdefault(key, {})[path] = digest(file)
        except (OSError, UserError):
            continue
    return digests


def differing_files(*jobs: FileDigests) -> list[str]:
    """The files, as ``key path``, that had other contents for one of the ``jobs`` than for another.

    A path that only one job has is another setting, or a file that an earlier release did not digest.
    """
    contents: dict[str, set[str]] = {}
    for digests in jobs:
        for key, files in digests.items():
            for path, digest in files.items():
                contents.setdefault(f"{key} {path}", set()).add(digest)
    return [name for name, different in contents.items() if len(different) > 1]


def _folder_digest(folder: Path) -> str:
    """Sha256 of the names and digests of all files in a data folder but those of its cache, which come from them."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and CACHE not in path.parts)
    return hashlib.sha256(
        b"".join(os.fsencode(path.relative_to(folder)) + f"\0{_sha256(path)}\n".encode() for path in paths)
    ).hexdigest()


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _named_files(config: JobConfig) -> Iterator[tuple[str, str]]:
    """(key, path) of the files, and of the folder, whose contents decide the result."""
    args = config.fedscale
    files = {
        "device_conf_file": args.device_conf_file,
        "device_avail_file": args.device_avail_file,
        _WEIGHTS: config.job.initial_weights,
        "public_dir": config.job.public_dir,
    }
    for key, path in files.items():
        if path not in (None, RESAMPLED):
            yield key, path
    models = [("model", args.model), ("capacity_model", config.job.capacity_model)]
    for name, value in config.method_params().items():
        models += [(f"{config.job.method}.{name}", entry) for entry in (value if isinstance(value, list) else ())]
    for key, model in models:
        if isinstance(model, str) and model.endswith(_SPEC):
            yield key, model
