"""The independent checks of equations: FedTrans's agrees with a job, and sees one altered number; what all refuse."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from equation_scripts import run_script, script_of
from safetensors.numpy import load_file, save_file

import fedscale_ext

GROW = {"fedtrans.gamma": 1, "fedtrans.delta": 2, "fedtrans.beta": 1e9, "fedtrans.alpha": 0.5}
JOB = {"method": "fedtrans", "rounds": 9, "num_participants": 6, "record_internals": True, "checkpoint_keep": 4}


@pytest.fixture(scope="module")
def job(session_job_file: Path) -> Path:
    return Path(fedscale_ext.run(session_job_file, job_name="equations", **JOB, **GROW)["log_dir"])


check = partial(run_script, "fedtrans")


PAPERS = ("fedtrans", "hypemefed", "fedoras")


@pytest.mark.parametrize("paper", PAPERS)
def test_a_script_imports_nothing_of_the_package(paper: str) -> None:
    assert "fedscale" not in script_of(paper).read_text(encoding="utf-8").split('"""')[2]


@pytest.mark.parametrize("paper", PAPERS)
def test_help_says_what_a_job_needs(paper: str) -> None:
    code, said = run_script(paper, "--help")
    assert code == 0 and "record_internals: True" in said and "checkpoint_keep" in said


@pytest.mark.parametrize(
    ("paper", "header", "said"),
    [
        ("fedtrans", None, "has no header.json: name the log folder of a job"),
        ("fedtrans", {"method": "fedavg", "params": {}}, "is a job of fedavg, not of fedtrans"),
        ("fedtrans", {"method": "fedtrans", "params": {}}, "it differs in sharing, decay"),
        ("hypemefed", None, "has no header.json: name the log folder of a job"),
        ("hypemefed", {"method": "fedavg", "params": {}}, "is a job of fedavg, not of hypemefed"),
        ("hypemefed", {"method": "hypemefed", "params": {"missing": "stale"}}, "it differs in missing, variant"),
        ("fedoras", None, "has no summary.json: name the log folder of a finished job"),
        ("fedoras", {"method": "fedavg", "params": {}, "config": {}}, "is a job of fedavg, not of fedoras"),
        (
            "fedoras",
            {"method": "fedoras", "params": {"aggregation": "plain"}, "config": {}},
            "it differs in aggregation",
        ),
    ],
)
def test_what_cannot_be_checked_is_told_in_a_sentence(
    tmp_path: Path, paper: str, header: dict[str, Any] | None, said: str
) -> None:
    if header is not None:
        (tmp_path / "header.json").write_text(json.dumps(header))
        (tmp_path / "summary.json").write_text("{}")
    code, output = run_script(paper, tmp_path)
    assert code == 1 and said in output and len(output.splitlines()) == 1


def test_a_job_without_internals_is_told_which_key_it_lacks(job: Path, tmp_path: Path) -> None:
    shutil.copy(job / "header.json", tmp_path)
    code, output = check(tmp_path)
    assert code == 1 and "record_internals: True" in output and len(output.splitlines()) == 1


def test_a_job_agrees_with_the_equations(job: Path) -> None:
    code, said = check(job)
    assert code == 0, said
    assert "9 rounds, 3 of them with their tensors, 3 models" in said
    for what in ("probabilities (Eqs 2, 3)", "utilities (Eq 4)", "convergence (Eq 1)", "activeness", "(Eq 5)"):
        assert what in said
    assert "WRONG" not in said and said.splitlines()[-1] == "the equations hold: no error above 1e-05"


def test_too_few_rounds_with_their_tensors_are_no_agreement(job: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(job, tmp_path / "run")
    min((folder / "checkpoints").iterdir()).unlink()
    code, said = check(folder)
    assert code == 1 and "WRONG" not in said
    assert said.splitlines()[-1].endswith(
        "2 rounds have their tensors, three are needed; train with checkpoint_keep: 4"
    )


def test_statistics_of_a_federated_pass_are_none_of_eq_5(session_job_file: Path) -> None:
    keys = {"bn_statistics": "federated", "eval_interval": 9, "model": "nasbench201_base"}
    done = fedscale_ext.run(session_job_file, job_name="static", **{**JOB, **GROW, **keys})
    code, said = check(Path(done["log_dir"]))
    assert code == 0 and "3 of them with their tensors" in said, said


def in_records(change: Callable[[dict[str, Any]], None], which: int = -1) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path = folder / "internals.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        change(lines[which])
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    return alter


def in_tensors(pattern: str, prefix: str) -> Callable[[Path], None]:
    def alter(folder: Path) -> None:
        path = sorted(folder.glob(pattern))[-1]
        tensors = load_file(path)
        name = next(name for name in tensors if name.startswith(prefix) and name.endswith("weight"))
        flat = tensors[name] = np.array(tensors[name])
        flat.reshape(-1)[0] += 1e-3 * np.abs(flat).max()
        save_file(tensors, path)

    return alter


def first(values: dict[str, Any]) -> str:
    return next(iter(values))


def shift(name: str) -> Callable[[dict[str, Any]], None]:
    def change(entry: dict[str, Any]) -> None:
        values = entry[name]
        key = first(values)
        if isinstance(values[key], list):
            values[key][0] += 1e-3
        else:
            values[key] *= 1.001

    return change


@pytest.mark.parametrize(("alter", "what"), [
    (in_records(shift("probabilities")), "probabilities"),
    (in_records(shift("utilities")), "utilities"),
    (in_records(shift("losses")), "standardised losses"),
    (in_records(shift("activeness")), "activeness"),
    (in_records(lambda entry: entry.update(doc=entry["doc"] * 1.001), which=2), "degree of convergence"),
    (in_records(lambda entry: entry["similarity"][0].__setitem__(1, 0.5)), "similarity"),
    (in_tensors("internals/*", "mean/m1/"), "soft aggregation"),
    (in_tensors("checkpoints/*", "tensor.pool/m0/"), "soft aggregation"),
])  # fmt: skip
def test_one_altered_number_is_found(job: Path, tmp_path: Path, alter: Callable[[Path], None], what: str) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    alter(folder)
    code, said = check(folder)
    wrong = [line for line in said.splitlines() if "WRONG" in line]
    assert code == 1
    assert any(line.startswith(what) for line in wrong), said


def test_a_job_of_other_resolutions_is_not_checked(job: Path, tmp_path: Path) -> None:
    header = json.loads((job / "header.json").read_text())
    header["params"]["align"] = "prefix"
    (tmp_path / "header.json").write_text(json.dumps(header))
    code, said = check(tmp_path)
    assert code == 1 and "differs in align" in said


def test_weights_of_the_last_rounds_alone_are_kept(job: Path) -> None:
    files = sorted(path.name for path in (job / "internals").iterdir())
    assert files == [f"round-{number:06d}.safetensors" for number in (6, 7, 8, 9)]
