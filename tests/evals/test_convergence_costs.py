"""Costs up to convergence, of jobs that trained all their rounds."""

import json
from pathlib import Path

import pytest

import fedscale_ext
from evals.paper import jobs


def test_costs_are_told_up_to_where_the_accuracy_converged(job_file: Path) -> None:
    fedscale_ext.run(job_file, model="cnn_small", rounds=3, eval_interval=1)
    (summary_file,) = job_file.parent.rglob("summary.json")
    log_dir = summary_file.parent
    rounds = [json.loads(line) for line in (log_dir / "metrics.jsonl").read_text().splitlines()]
    figures = jobs.figures(log_dir)
    # ten rounds have not passed: costs of all three would be some at equal rounds
    assert not [name for name in figures if "convergence" in name]
    summary = json.loads(summary_file.read_text())
    summary["config"] |= {"stop_gain": 1.0, "stop_patience": 1}
    summary_file.write_text(json.dumps(summary))
    figures = jobs.figures(log_dir)
    assert figures["rounds to convergence"] == 2
    expected = sum(one["training_macs"] for one in rounds[:2]) / 1e12
    assert figures["TMACs at convergence"] == pytest.approx(expected) and expected < figures["TMACs"]
    best = max(one["evaluation"]["accuracy"]["mean"] for one in rounds[:2])
    assert figures["accuracy at convergence %"] == pytest.approx(100 * best)
