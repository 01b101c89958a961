"""Jobs run from a configuration, and what two runs of a job must agree on, whatever happened on the way."""

import json
from pathlib import Path
from typing import Any

import torch

import fedscale_ext
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.metrics.job_folder.round_records import LAST, read_lines, read_records

TIMES = ("wall_s", "seconds", "executor_seconds", "faults")  # of a round's line: these tell what happened meanwhile
TESTS = ("evaluation", *LAST)


def result(log_dir: Path) -> dict[str, Any]:
    """Every round but its wall time and digests, each client's figures, and the final models' exact weights."""
    rounds = [json.loads(line) for line in (log_dir / "metrics.jsonl").read_text().splitlines()]
    for entry in rounds:
        for name in (*TIMES, "digests"):  # digests tell the settings apart, too, which tests vary
            entry.pop(name, None)
        for name in TESTS:
            (entry.get(name) or {}).pop("sha256", None)
    tested = [record.evaluation for record in read_records(log_dir / "metrics.jsonl")]
    for entry, evaluation in zip(rounds, tested, strict=True):
        if evaluation is not None:
            columns = (evaluation.correct, evaluation.top5, evaluation.loss, evaluation.count)
            entry["evaluation"]["columns"] = [column.tolist() for column in columns]
            entry["evaluation"]["serve"] = list(evaluation.serve)
    models = {path.stem: load_model(path) for path in sorted((log_dir / "models").glob("*.safetensors"))}
    return {"rounds": rounds, "models": models}


def run_job(job_file: Path, name: str, at_once: bool, **settings: Any) -> dict[str, Any]:
    """Run a whole job; returns its result. ``at_once``: with one executor in a thread of this process."""
    if at_once:
        run_in_process(with_values(load_config(job_file), job_name=name, **settings))
    else:
        fedscale_ext.run(job_file, job_name=name, **settings)
    return result(job_file.parent / "logs" / name / "logs")


def chain(log_dir: Path) -> list[str]:
    """The chain after each round: the same in all runs of a job, whatever happened on the way."""
    return [line["digests"]["chain"] for line in read_lines(log_dir / "metrics.jsonl")]


def states(log_dir: Path) -> list[tuple[str, str, str | None]]:
    """Digests of a job's states and clients' files after each round."""
    digests = [line["digests"] for line in read_lines(log_dir / "metrics.jsonl")]
    return [(each["models"], each["states"], each.get("clients")) for each in digests]


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one["rounds"] == other["rounds"]
    assert one["models"].keys() == other["models"].keys()
    for key, (spec, state) in one["models"].items():
        assert spec == other["models"][key][0]
        assert all(torch.equal(value, other["models"][key][1][name]) for name, value in state.items()), key
