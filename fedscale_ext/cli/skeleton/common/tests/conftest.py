"""Whole jobs of mymethod, of a second each, on drawn data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions

CONF = Path(__file__).parents[1] / "mymethod.yml"
# twelve participants make work units of three (fewer would train alone, whatever cohort_size says), and a small
# learning rate keeps rounding from growing
SMALL = {
    "rounds": 3, "num_participants": 12, "local_steps": 3, "batch_size": 5, "eval_interval": 3, "cohort_size": 1,
    "learning_rate": 0.01,
}  # fmt: skip


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve clients with 12 to 34 samples of four patterns in noise."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    client = np.repeat(np.arange(12), [34, 30, 25, 20, 15, 12] * 2)
    label = rng.integers(0, 4, len(client))
    patterns = rng.integers(0, 2, (4, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) * 200
    x = (patterns[label] + rng.integers(0, 50, (len(client), 28, 28))).astype(np.uint8)
    np.savez(folder / "drawn.npz", x=x, y=label, client=client)
    import_npz(folder / "drawn.npz", folder / "drawn", "digits", NpzOptions(name="drawn patterns, generated"))
    return folder / "drawn"


@pytest.fixture(scope="session")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs mymethod.yml with other keys, and returns the result."""
    folder = tmp_path_factory.mktemp("jobs")

    def run(name: str, **keys: Any) -> Any:
        paths = {"data_dir": str(data), "log_path": str(folder), "job_name": name, "time_stamp": "test"}
        result = fedscale_ext.run(CONF, **{**SMALL, **paths, **keys})
        assert result["clients"]["failed_total"] == 0
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCALE_EXT_STATE", str(folder / "state"))  # these are not among your own jobs
        yield run


@pytest.fixture(scope="session")
def usual(job: Any) -> Any:
    """What three rounds of mymethod reach."""
    return job("usual")
