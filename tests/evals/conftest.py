"""Makes the folder evals importable: it is part of the checkout, not of the package. What tests of all papers share."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from evals.paper.engine import planned
from evals.paper.experiment import Experiment
from evals.paper.job_keys import resolved
from evals.paper.papers import Paper
from fedscale_ext.config.job_config import load_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class


@pytest.fixture
def jobs_of() -> Callable[[Paper, Experiment, str], list[tuple[str, dict[str, Any], Any]]]:
    """Of each job of a script at a scale: data set, job_conf keys, and what its method makes of them."""

    def jobs(paper: Paper, experiment: Experiment, scale: str) -> list[tuple[str, dict[str, Any], Any]]:
        arms = planned(paper, experiment, scale, None)
        assert arms and len({(arm.label, data) for arm, data in arms}) == len(arms)
        described = []
        for arm, data in arms:
            keys = resolved({**paper.keys_of(data, scale), **arm.keys})
            method = str(keys["method"])
            job_keys = {key: value for key, value in keys.items() if key.partition(".")[0] in (key, method)}
            settings = [f"{key}={json.dumps(value)}" for key, value in job_keys.items()]
            config = load_config(str(paper.folder / "job.yml"), settings)
            described.append((data, keys, make_params(method_class(method).Params, config)))
        return described

    return jobs


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """A row of results with one figure."""

    def make_row(label: str, values: Sequence[float], column: str, data: str = "any") -> dict[str, Any]:
        figures = {column: {"values": list(values), "mean": sum(values) / len(values)}}
        return {"label": label, "data": data, "seeds": list(range(len(values))), "figures": figures}

    return make_row


@pytest.fixture(scope="module")
def places(tiny_femnist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of a script: its data, where a small set stands for Chars74K, its jobs, and its results."""
    root = tmp_path_factory.mktemp("evals")
    (root / "data").mkdir()
    (root / "data" / "chars74k").symlink_to(tiny_femnist)
    return {"folder": root / "data", "runs": root / "runs", "results": root / "results"}
