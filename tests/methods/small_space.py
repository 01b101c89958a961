"""A supernet of four operators in two layers, for the tests of methods that search one."""

import json
from pathlib import Path

from fedscale_ext import models

SPACE = {
    "family": "supernet",
    "fields": {
        "form": "cnn",
        "stem": [8, 2],
        "blocks": [1, 1],
        "operators": ["conv1", "dsconv3", "dsconv3_double", "identity"],
        "reductions": [["pool", 12, 2], ["pool", 16, 2]],
    },
}


def written(folder: Path) -> Path:
    """The space as a file."""
    path = folder / "space.json"
    path.write_text(json.dumps(SPACE))
    return path


def spec_of(shape: tuple[int, int, int], classes: int, folder: Path) -> models.ModelSpec:
    """Its spec for a task."""
    return models.configured_spec(str(written(folder)), shape, classes)
