"""Whole jobs of mymethod, of a second each, on drawn data: what must hold whatever it computes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions
from fedscale_ext.method import UserError

CONF = Path(__file__).parents[1] / "mymethod.yml"
# twelve participants make work units of three (fewer would train alone, whatever cohort_size says), and a small
# learning rate keeps rounding from growing
SMALL = {
    "rounds": 3, "num_participants": 12, "local_steps": 3, "batch_size": 5, "eval_interval": 3, "cohort_size": 1,
    "learning_rate": 0.01,
}  # fmt: skip


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def job(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Runs mymethod.yml with other keys; losses and accuracies of its summary."""
    folder = tmp_path_factory.mktemp("jobs")

    def run(name: str, **keys: Any) -> dict[str, Any]:
        paths = {"data_dir": str(data), "log_path": str(folder), "job_name": name, "time_stamp": "test"}
        summary = fedscale_ext.run(CONF, **{**SMALL, **paths, **keys})
        assert summary["clients"]["failed_total"] == 0
        return {**summary["loss"], **summary["accuracy"]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSCALE_EXT_STATE", str(folder / "state"))  # these are not among your own jobs
        yield run


@pytest.fixture(scope="module")
def usual(job: Any) -> Any:
    """What three rounds of mymethod reach."""
    return job("usual")


def test_without_momentum_and_smoothing_it_is_fedavg(job: Any, usual: Any) -> None:
    plain = job("plain", method="fedavg")
    own = job("own", **{"mymethod.momentum": 0, "mymethod.smoothing": 0})
    assert own["test"] == pytest.approx(plain["test"], rel=1e-4)
    assert usual["test"] != pytest.approx(plain["test"], rel=1e-4)


def test_a_resumed_job_goes_on_bit_for_bit(job: Any, usual: Any) -> None:
    job("parts", rounds=2)
    assert job("parts", resume=True) == usual


def test_clients_side_by_side_learn_what_they_learn_one_by_one(job: Any, usual: Any) -> None:
    assert job("cohort", cohort_size=4)["test"] == pytest.approx(usual["test"], rel=1e-4)


@pytest.mark.parametrize("key", ["momentum", "smoothing"])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, key: str) -> None:
    with pytest.raises(UserError, match=f"mymethod.{key} is -1"):
        job("bad", **{f"mymethod.{key}": -1})
