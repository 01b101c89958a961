"""The independent check of HypeMeFed's rounds: it agrees with a job, and sees one altered number."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equation_scripts import run_script
from safetensors.numpy import load_file, save_file

import fedscale_ext

JOB: dict[str, Any] = {"method": "hypemefed", "model": "multi_exit_cnn3", "hypemefed.groups": [3, 2, 2],
                       "hypemefed.hidden": 24, "hypemefed.epochs": 8, "hypemefed.k": 20, "num_participants": 6,
                       "rounds": 3, "record_internals": True, "checkpoint_keep": 3}  # fmt: skip


@pytest.fixture(scope="module")
def job(session_job_file: Path) -> Path:
    return Path(fedscale_ext.run(session_job_file, job_name="hypemefed_equations", **JOB)["log_dir"])


@pytest.fixture(scope="module")
def scaled(session_job_file: Path) -> Path:
    keys = {**JOB, "hypemefed.rescale": True, "hypemefed.sample_order": "fixed", "rounds": 2}
    return Path(fedscale_ext.run(session_job_file, job_name="hypemefed_scaled", **keys)["log_dir"])


check = partial(run_script, "hypemefed")


def test_a_job_agrees_with_the_equations(job: Path) -> None:
    code, said = check(job)
    assert code == 0, said
    assert "3 rounds, 2 of them with their tensors" in said
    assert all(what in said for what in ("mean", "loss", "values", "generated")) and "WRONG" not in said


def test_a_job_that_scales_generated_layers_agrees_and_is_told_from_one_that_does_not(
    scaled: Path, tmp_path: Path
) -> None:
    code, said = check(scaled)
    assert code == 0, said
    folder = tmp_path / "job"
    shutil.copytree(scaled, folder)
    header = json.loads((folder / "header.json").read_text())
    header["params"]["rescale"] = False
    (folder / "header.json").write_text(json.dumps(header))
    code, said = check(folder)
    assert code == 1 and any(line.startswith("generated") and "WRONG" in line for line in said.splitlines()), said


@pytest.mark.parametrize(("pattern", "prefix", "what"), [
    ("internals/*", "client/", "mean"),
    ("internals/*", "generated/", "generated"),
    ("checkpoints/*", "tensor.method/", "values"),
    ("checkpoints/*", "tensor.pool/exit3/block3.conv1", "mean"),
])  # fmt: skip
def test_one_altered_number_is_found(job: Path, tmp_path: Path, pattern: str, prefix: str, what: str) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    path = sorted(folder.glob(pattern))[-1]
    tensors = load_file(path)
    name = next(name for name in tensors if name.startswith(prefix) and tensors[name].size > 100)
    flat = tensors[name] = np.array(tensors[name])
    flat.reshape(-1)[0] += 2 * np.linalg.norm(flat) if what == "values" else np.abs(flat).max()
    save_file(tensors, path)
    code, said = check(folder)
    assert code == 1
    assert any(line.startswith(what) and "WRONG" in line for line in said.splitlines()), said


@pytest.mark.parametrize(("change", "what"), [(lambda order: order[::-1], "values"),
                                              (lambda order: order[:-1] + order[:1], "orders")])  # fmt: skip
def test_another_order_of_the_samples_is_found(job: Path, tmp_path: Path, change: Any, what: str) -> None:
    # Adam learns from one client after the other: what it ends with depends on which came last
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    path = folder / "internals.jsonl"
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for entry in entries:
        orders = entry["hypernetwork_orders"]
        entry["hypernetwork_orders"] = {name: list(map(change, samples)) for name, samples in orders.items()}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    code, said = check(folder)
    assert code == 1
    wrong = {line.split()[0] for line in said.splitlines() if "WRONG" in line}
    assert what in wrong and "mean" not in wrong, said
