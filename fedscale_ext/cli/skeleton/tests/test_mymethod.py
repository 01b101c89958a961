"""Whole jobs of mymethod, of a second each, on data that are drawn here: what must hold whatever it computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext.data.importers import import_npz
from fedscale_ext.errors import UserError

CONF = Path(__file__).parents[1] / "mymethod.yml"
SMALL = {"rounds": 3, "num_participants": 4, "local_steps": 3, "batch_size": 5, "eval_interval": 3, "cohort_size": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six clients with 4 to 34 samples of four patterns in noise."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(5)
    client = np.repeat(np.arange(6), [34, 30, 25, 20, 15, 4])
    label = rng.integers(0, 4, len(client))
    patterns = rng.integers(0, 2, (4, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) * 200
    x = (patterns[label] + rng.integers(0, 50, (len(client), 28, 28))).astype(np.uint8)
    np.savez(folder / "drawn.npz", x=x, y=label, client=client)
    import_npz(folder / "drawn.npz", folder / "drawn", "femnist", name="drawn patterns, generated")
    return folder / "drawn"


@pytest.fixture
def job(data: Path, tmp_path: Path) -> Any:
    """Runs the shipped configuration with other keys; losses and accuracies of its summary."""

    def run(name: str, **keys: Any) -> Any:
        places = {"data_dir": str(data), "log_path": str(tmp_path), "job_name": name, "time_stamp": "test"}
        summary = fedscale_ext.run(CONF, **{**SMALL, **places, **keys})
        assert summary["clients"]["failed_total"] == 0
        return {**summary["loss"], **summary["accuracy"]}

    return run


def test_without_momentum_and_smoothing_it_is_fedavg(job: Any) -> None:
    plain, own = job("plain", method="fedavg"), job("own", **{"mymethod.momentum": 0, "mymethod.smoothing": 0})
    assert own["test"] == pytest.approx(plain["test"], rel=1e-4)
    assert job("other")["test"] != pytest.approx(plain["test"], rel=1e-4)


def test_a_resumed_job_goes_on_bit_for_bit(job: Any) -> None:
    whole = job("whole")
    job("parts", rounds=2)
    assert job("parts", resume=True) == whole


def test_clients_side_by_side_learn_what_they_learn_one_by_one(job: Any) -> None:
    one_by_one, together = job("single"), job("cohort", cohort_size=4)
    assert together["test"] == pytest.approx(one_by_one["test"], rel=1e-4)


@pytest.mark.parametrize("key", ["momentum", "smoothing"])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, key: str) -> None:
    with pytest.raises(UserError, match=f"mymethod.{key} is -1"):
        job("bad", **{f"mymethod.{key}": -1})
