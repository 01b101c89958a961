"""Supernets of four operators in few layers, for the tests of methods that search one."""

import json
from pathlib import Path
from typing import Any

from fedscale_ext import models


def space(*blocks: int) -> dict[str, Any]:
    """A supernet with so many layers before each of two reductions."""
    fields = {
        "form": "cnn",
        "stem": [8, 2],
        "blocks": list(blocks),
        "operators": ["conv1", "dsconv3", "dsconv3_double", "identity"],
        "reductions": [["pool", 12, 2], ["pool", 16, 2]],
    }
    return {"family": "supernet", "fields": fields}


SPACE = space(1, 1)


def written(folder: Path, of: dict[str, Any] = SPACE) -> Path:
    """The space as a file."""
    path = folder / "space.json"
    path.write_text(json.dumps(of))
    return path


def spec_of(shape: tuple[int, int, int], classes: int, folder: Path) -> models.ModelSpec:
    """Its spec for a task."""
    return models.configured_spec(str(written(folder)), shape, classes)
