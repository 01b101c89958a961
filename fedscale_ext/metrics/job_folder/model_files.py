"""Models on disk: a safetensors file each, with the spec that builds it."""

import json
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import Model, State
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.reading import MEGA, load_json, open_plain
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

FOLDER = "models"
_MAX_HEADER = 64 * MEGA  # bytes of names, shapes and metadata


def model_file(directory: Path, key: str) -> Path:
    """The file of a model's weights in a job's folder; characters that a file name cannot hold are percent-encoded."""
    return directory / FOLDER / f"{quote(key, safe=' ')}.safetensors"


def save_models(directory: Path, models: Iterable[Model]) -> list[Path]:
    """Write ``directory/models/<key>.safetensors`` for each model; returns the paths in that order.

    The metadata holds ``spec`` (JSON), ``key``, ``version`` and a digest of the file. Characters of a
    key that a file name cannot hold are percent-encoded. ``<key>.json`` beside it is only the spec, which a
    configuration's ``model`` may name. Other models in that folder, left by an earlier job of the same name,
    are removed.
    """
    paths, written = [], set()
    for model in models:
        path = model_file(directory, model.key)
        spec = json.dumps(model.spec.to_json(), sort_keys=True)
        write_tensors(path, model.state, {"spec": spec, "key": model.key, "version": str(model.version)})
        write_atomic(path.with_suffix(".json"), spec + "\n")
        paths.append(path)
        written |= {path, path.with_suffix(".json")}
    for other in (directory / FOLDER).glob("*"):
        if other.suffix in (".safetensors", ".json") and other not in written:
            other.unlink()
    return paths


def is_model_file(path: Path) -> bool:
    """Whether a file says that :func:`save_models` wrote it; it may be damaged."""
    try:
        with open_plain(path) as file:
            length = int.from_bytes(file.read(8), "little")
            header = load_json(file.read(length)) if length <= _MAX_HEADER else {}
    except (OSError, ValueError):
        return False
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    return isinstance(metadata, dict) and {"spec", "key", "version"} <= metadata.keys()


def load_model(path: Path) -> tuple[ModelSpec, State]:
    """Spec and state of a file of :func:`save_models`; UserError where it is missing or damaged."""
    tensors, metadata = read_tensors(path)
    try:
        return ModelSpec.from_json(load_json(metadata["spec"])), tensors
    except (KeyError, TypeError, ValueError):
        raise UserError(f"{path} holds tensors but no model spec: it was not written by save_models") from None
