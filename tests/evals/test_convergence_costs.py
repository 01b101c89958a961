"""Costs up to convergence, of jobs that trained all their rounds."""

import json
from pathlib import Path

import pytest

import fedscale_ext
from evals.paper import jobs
from evals.paper.orders import COSTS


def test_costs_are_told_up_to_where_the_accuracy_converged(job_file: Path) -> None:
    fedscale_ext.run(job_file, model="cnn_small", rounds=3, eval_interval=1)
    (summary_file,) = job_file.parent.rglob("summary.json")
    log_dir = summary_file.parent
    rounds = [json.loads(line) for line in (log_dir / "metrics.jsonl").read_text().splitlines()]
    figures = jobs.figures(log_dir)
    assert figures["rounds to convergence"] == 3  # ten rounds have not passed
    for cost in COSTS:
        assert figures[f"{cost} at convergence"] == pytest.approx(figures[cost]), cost
    summary = json.loads(summary_file.read_text())
    summary["config"] |= {"stop_gain": 1.0, "stop_patience": 1}
    summary_file.write_text(json.dumps(summary))
    figures = jobs.figures(log_dir)
    assert figures["rounds to convergence"] == 2
    expected = sum(one["training_macs"] for one in rounds[:2]) / 1e12
    assert figures["TMACs at convergence"] == pytest.approx(expected) and expected < figures["TMACs"]
    best = max(one["evaluation"]["accuracy"]["mean"] for one in rounds[:2])
    assert figures["accuracy at convergence %"] == pytest.approx(100 * best)
