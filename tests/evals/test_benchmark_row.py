"""A row's jobs become lines."""

from pathlib import Path

from evals.benchmark.row import _record
from evals.paper.measurement import Measurement
from evals.paper.runs import Records


def line(row: str, plan: str, seed: int, accuracy: float) -> Measurement:
    keys = {"row": row, "method": "fedavg", "learning_rate": 0.1, "plan": plan}
    return Measurement("har", "benchmark", seed, keys, {"own %": accuracy})


def test_lines_of_another_plan_leave_their_row(tmp_path: Path) -> None:
    for one in (
        line("A", "old", 1, 50.0),
        line("A", "new", 1, 60.0),
        line("A", "new", 2, 61.0),
        line("B", "old", 1, 1.0),
    ):
        _record(Records.load(tmp_path), one)
    records = Records.load(tmp_path)
    values = {
        row.label: [records.runs[each].figures["own %"] for each in row.runs] for row in records.tables["har"].rows
    }
    assert values == {"A": [60.0, 61.0], "B": [1.0]}
    assert len(records.runs) == 3
