"""Hyperparameters that another one switches off change nothing: pairs of jobs with equal results, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, run_job, states

from fedscale_ext.config.idle_settings import idle_keys
from fedscale_ext.config.job_config import load_config, with_values

EXITS: dict[str, Any] = {"model": "multi_exit_cnn3", "num_participants": 7}
SCALED: dict[str, Any] = {
    **EXITS, "scalefl.widths": [0.5, 0.75, 1.0], "scalefl.exits": [1, 2, 3], "scalefl.groups": [3, 2, 2]
}  # fmt: skip
GROUPS = {"depthfl.groups": [3, 2, 2], "depthfl.inclusive": True}
TRAINED = {"hypemefed.groups": [3, 2, 2], "hypemefed.missing": "trained"}
STUDENTS = {"feddf.types": ["cnn_small"], "feddf.groups": [7], "feddf.steps": 0, "public_samples": 30}


@pytest.mark.parametrize(
    ("method", "beside", "unread"),
    [
        ("scalefl", SCALED, {"scalefl.gamma": 0.9, "scalefl.temperature": 1.0, "scalefl.kd_after": 0.0}),
        ("depthfl", {**EXITS, **GROUPS}, {"depthfl.kd": False, "depthfl.ramp_up": 1.0}),
        ("hypemefed", {**EXITS, **TRAINED}, {"hypemefed.k": 2, "hypemefed.generated_weight": 0.1}),
        ("feddf", STUDENTS, {"feddf.lr": 0.5, "feddf.batch_size": 4, "feddf.patience": 2}),
        ("hermes", {"hermes.match_params": ["cnn_small"], "model": "cnn_small", "hermes.groups": [7]},
         {"hermes.param_ratio": [0.5]}),
    ],
)  # fmt: skip
def test_a_job_with_other_values_is_the_same_job(
    method: str, beside: dict[str, Any], unread: dict[str, Any], job_file: Path
) -> None:
    settings = {"method": method, "rounds": 2, **beside}
    note = idle_keys(with_values(load_config(job_file), **settings, **unread))
    assert note is not None and all(key in note for key in unread)
    plain = run_job(job_file, "plain", True, **settings)
    assert_equal(plain, run_job(job_file, "other", True, **settings, **unread))
    folders = [job_file.parent / "logs" / name / "logs" for name in ("plain", "other")]
    assert states(folders[0]) == states(folders[1])
