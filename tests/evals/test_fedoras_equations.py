"""The independent check of FedorAS's equations: it agrees with a job, and sees one altered number."""

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

SPACE = {"family": "supernet", "fields": {
    "form": "cnn", "stem": [8, 2], "blocks": [2, 1], "reductions": [["pool", 12, 2], ["pool", 16, 2]],
    "operators": ["conv1", "dsconv3", "dsconv3_double", "identity"]}}  # fmt: skip
JOB: dict[str, Any] = {
    "method": "fedoras", "rounds": 9, "num_participants": 6, "local_steps": 12, "eval_interval": 100, "batch_size": 4,
    "fedoras.tiers": 2, "fedoras.allocation": "shares", "fedoras.supernet_rounds": 3, "fedoras.finetune_rounds": 1,
    "fedoras.twin_rounds": 1, "fedoras.evaluations": 6, "fedoras.population": 3, "fedoras.parents": 2,
    "fedoras.subspace": 0.7, "record_internals": True, "checkpoint_keep": 10,
}  # fmt: skip

pytestmark = pytest.mark.slow  # twenty seconds


@pytest.fixture(scope="module")
def job(session_job_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    space = tmp_path_factory.mktemp("space") / "space.json"
    space.write_text(json.dumps(SPACE))
    ran = fedscale_ext.run(session_job_file, job_name="fedoras_equations", model=str(space), **JOB)
    return Path(ran["log_dir"])


check = partial(run_script, "fedoras")


def test_a_job_agrees_with_the_equations(job: Path) -> None:
    code, said = check(job)
    assert code == 0, said
    assert "7 rounds, OPA of 2 of them checked" in said
    for what in "opa fedavg inherited examples held subspace budget paths best brackets".split():
        assert any(line.startswith(what) for line in said.splitlines()), what
    assert "WRONG" not in said


@pytest.mark.parametrize(("file", "prefix", "what"), [
    ("internals/round-000002", "client/", "opa"),
    ("checkpoints/checkpoint-000002", "tensor.pool/supernet/layers", "opa"),
    ("checkpoints/checkpoint-000005", "tensor.pool/tier1/", "fedavg"),
    ("checkpoints/checkpoint-000004", "tensor.pool/tier2/", "inherited"),
])  # fmt: skip
def test_one_altered_tensor_is_found(job: Path, tmp_path: Path, file: str, prefix: str, what: str) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    path = folder / f"{file}.safetensors"
    tensors = load_file(path)
    name = next(name for name in sorted(tensors) if name.startswith(prefix) and tensors[name].size > 10)
    tensors[name] = tensors[name] + 1
    save_file(tensors, path)
    code, said = check(folder)
    assert code == 1 and any(line.startswith(what) and "WRONG" in line for line in said.splitlines()), said


def altered(job: Path, folder: Path, change: Any) -> str:
    shutil.copytree(job, folder)
    path = folder / "internals.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, said = check(folder)
    assert code == 1
    return said


def test_paths_of_another_distribution_are_found(job: Path, tmp_path: Path) -> None:
    def always_dearest(lines: list[Any]) -> None:
        for line in lines[:3]:
            for examples in line["examples"].values():
                for row in examples:
                    row.sort()

    said = altered(job, tmp_path / "job", always_dearest)
    assert any(line.startswith("paths") and "WRONG" in line for line in said.splitlines()), said


def test_examples_that_do_not_add_up_are_found(job: Path, tmp_path: Path) -> None:
    def one_more(lines: list[Any]) -> None:
        first = next(iter(lines[1]["examples"].values()))
        first[0][int(np.argmax(first[0]))] += 1

    said = altered(job, tmp_path / "job", one_more)
    assert any(line.startswith("examples") and "WRONG" in line for line in said.splitlines()), said


def test_other_brackets_are_found(job: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["results"]["tiers"][0]["budget_mmacs"] *= 1.2
    (folder / "summary.json").write_text(json.dumps(summary))
    code, said = check(folder)
    assert code == 1 and any(line.startswith("brackets") and "WRONG" in line for line in said.splitlines()), said
