"""Errors of generated weights, from what jobs with `record_internals` wrote in each round."""

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from evals.paper.experiment import Run

MEASURES = {"mae": "MAE", "normalised": "normalised MAE", "mae_old": "MAE of old", "mae_random": "MAE of random",
            "step": "step", "cosine": "cosine", "norm": "norm"}  # fmt: skip
OLD, RANDOM = "old layer", "random order"
_LAYER = re.compile(r"block(\d+)\..*weight")


def with_errors(runs: Sequence[Run]) -> list[Run]:
    """Each run with figures such as "MAE" and "MAE, block 2": means over the last quarter of its rounds and over layers
    (of convolutions alone)."""
    return [replace(run, figures={**run.figures, **_errors(run)}) for run in runs]


def _errors(run: Run) -> dict[str, float]:
    path = run.job / "internals.jsonl"
    rounds = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    by_title: dict[str, list[float]] = defaultdict(list)
    for one in rounds:
        if one["round"] <= 0.75 * rounds[-1]["round"]:
            continue
        for name, values in one.get("generated", {}).items():
            match = _LAYER.fullmatch(name)
            if match is None or ".bn" in name:
                continue
            for key, title in MEASURES.items():
                if key in values:
                    by_title[title].append(values[key])
                    by_title[f"{title}, block {match[1]}"].append(values[key])
            per_size = values["normalised"] / values["mae"] if values["mae"] else 0.0
            for key in ("mae_old", "mae_random"):
                title = f"normalised {MEASURES[key]}"
                by_title[title].append(values[key] * per_size)
                by_title[f"{title}, block {match[1]}"].append(values[key] * per_size)
    return {title: fmean(values) for title, values in by_title.items()}


def with_other_guesses(runs: Sequence[Run]) -> list[Run]:
    """As :func:`with_errors`, and behind each arm's run rows for the other guesses of what its clients trained."""
    rows = []
    for run in with_errors(runs):
        rows.append(run)
        for key, what in (("mae_old", OLD), ("mae_random", RANDOM)):
            ours = {title: run.figures[other] for title in ("MAE", "normalised MAE")
                    if (other := title.replace("MAE", MEASURES[key])) in run.figures}  # fmt: skip
            arm = replace(run.arm, label=f"{what}, {run.arm.label}", paper={})
            rows.append(replace(run, arm=arm, figures=ours))
    return rows
