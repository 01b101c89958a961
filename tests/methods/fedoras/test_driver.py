"""FedorAS as people start it: processes of their own, the same result as in one process; bad input is a sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_results import assert_equal, result

from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.entry.in_process import run_in_process

GOLDEN: dict[str, Any] = {
    "method": "fedoras", "model": "cnn_tiny", "rounds": 4, "num_participants": 6, "local_steps": 1,
    "fedoras.supernet_rounds": 1, "fedoras.finetune_rounds": 1, "fedoras.brackets": [1.2, 6.0],
    "fedoras.allocation": "shares", "fedoras.evaluations": 3, "fedoras.population": 2, "fedoras.parents": 2,
    "fedoras.val_ratio": 0.2,
}  # fmt: skip


def start(job_file: Path, state: Path, **keys: Any) -> "subprocess.CompletedProcess[str]":
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    return subprocess.run(
        [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(job_file), *settings],
        env={**os.environ, "FEDSCALE_EXT_STATE": str(state)}, text=True, capture_output=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_driver_runs_all_stages_and_shows_them(job_file: Path, tmp_path: Path) -> None:
    done = start(job_file, tmp_path / "state", job_name="driven", worker_ips="localhost:[1]", **GOLDEN)
    assert done.returncode == 0, done.stderr
    assert "round 2: search of tier 1 of 2: 2 of 3 paths judged, best " in done.stdout
    assert "round 2/4, search, 0 clients, 3 models, accuracy " in done.stdout
    run_in_process(with_values(load_config(job_file), job_name="alone", num_executors=2, **GOLDEN))
    driven, alone = (result(job_file.parent / "logs" / name / "logs") for name in ("driven", "alone"))
    assert_equal(driven, alone)
    assert [each["assignments"] for each in driven["rounds"]][:3] == [{"supernet": 6}, {}, {"tier1": 6}]
    assert all(len(names) == 1 for key in ("tier1", "tier2") for names in driven["models"][key][0]["ops"])


def test_bad_input_ends_the_driver_with_code_2_and_one_sentence(job_file: Path, tmp_path: Path) -> None:
    space = tmp_path / "space.json"
    fields = {"form": "cnn", "stem": [8, 2], "blocks": [2], "operators": ["conv1", "dsconv9"], "reductions": []}
    space.write_text(json.dumps({"family": "supernet", "fields": {**fields, "reductions": [["pool", 8, 2]]}}))
    keys = {**GOLDEN, "model": space, "worker_ips": "localhost:[1]"}
    done = start(job_file, tmp_path / "state", job_name="bad", **keys)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fedscale:")]
    assert "layer 0 has an unknown operator 'dsconv9'" in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"fedoras.brackets": [0.01, 6.0]}, "the budget of tier 1 is 0.01 MMACs and its cheapest path takes"),
    ({"fedoras.population": 0}, "fedoras.population is 0; it must be at least 2"),
    ({"fedoras.allocation": "capacity", "fedoras.brackets": [1.2, 1e6]}, "tier 2 of 2 has none of the 7 clients"),
])  # fmt: skip
def test_more_bad_input_is_one_sentence(job_file: Path, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        run_in_process(with_values(load_config(job_file), job_name="bad", **{**GOLDEN, **keys}))
    assert "\n" not in str(error.value)
