"""Seconds per round of 100 participants: the plain loop, then cohorts of 1 to 256, in float32 and bfloat16."""

from argparse import Namespace
from typing import Any

from evals.speed.cohorts import OTHER_LAYOUT, clients, prepared, seconds
from evals.speed.gpu.measurements import Measurements, Setting
from evals.speed.task import CLIENTS, STEPS

PART = "rounds"
GOAL = 8.0  # times the plain loop's speed, of a network with BatchNorm at 100 participants
GOAL_MODEL = "nasbench201_base"
MODELS = (GOAL_MODEL, "cnn_small", "cnn_leaf")
COHORTS = ("100", "100" + OTHER_LAYOUT, "8", "32", "256", "1")  # what the goal needs first
PRECISIONS = ("float32", "bfloat16")
# the loop's first measurement: it cannot be known before, and is guessed from some 400 and 20 kernels a step
_LOOP_S = {GOAL_MODEL: 60.0, "cnn_small": 10.0, "cnn_leaf": 10.0}


def run(measurements: Measurements) -> None:
    """Measure all models, sizes and precisions for which the time suffices."""
    small = measurements.setting.small
    for precision in PRECISIONS:
        for model in MODELS[1:2] if small else MODELS:
            _model(measurements, model, precision)


def _model(measurements: Measurements, model: str, precision: str) -> None:
    expected = 0.0 if measurements.setting.small else _LOOP_S[model]
    for row in ("loop", *(COHORTS[:3] if measurements.setting.small else COHORTS)):
        figures = measurements.measure(
            PART, expected, lambda row=row: _seconds(measurements.setting, model, row, precision),
            model=model, row=row, precision=precision,
        )  # fmt: skip
        if row == "loop" and figures is not None:
            expected = float(figures["best_s"])  # several runs of a cohort should not take longer


def _seconds(setting: Setting, model: str, row: str, precision: str) -> dict[str, Any]:
    """Best and worst seconds of training all clients once."""
    count = 3 if setting.small else max(CLIENTS, 256 if row == "256" else 0)
    asked = Namespace(clients=count, steps=1 if setting.small else STEPS, precision=precision)
    data = clients(asked, setting.device)
    train = prepared(model, row, data, asked, setting.device)
    few = prepared(model, row, data[:2], asked, setting.device) if row == "loop" else None
    times = seconds(train, setting.device, 1 if row in ("loop", "1") else 3, warm_up=few)
    return {"clients": count, "best_s": min(times), "worst_s": max(times)}
