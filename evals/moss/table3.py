"""Table 3: accuracy by type of device (claims M1 to M3)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evals.moss.arms import ACCURACY, APPLICATIONS, BASELINES, LITERAL, MOSS, most, suite
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import TYPES, columns, with_types
from evals.paper.engine import Arm, Experiment, Run
from evals.paper.orders import Order

LITERAL_MOSS = "Moss, momentum 0.05"
GAIN, ABOVE_BEST = "above the mean baseline, pp", "above the best baseline, pp"


def gain_label(kind: str) -> str:
    """The row of a type's gains."""
    return f"Moss's gain, {kind}"


def with_gains(runs: Sequence[Run]) -> list[Run]:
    """The runs by type of device, and a row for each type: what Moss gains there over the baselines, where all of them
    have finished."""
    shown = with_types(runs, MOSS)
    gains = []
    for ours in (run for run in shown if run.arm.label == MOSS):
        others = [run for run in shown
                  if (run.data, run.seed) == (ours.data, ours.seed) and run.arm.label in BASELINES]  # fmt: skip
        if len(others) < len(BASELINES):
            continue
        for kind, column in zip(TYPES, columns("%"), strict=False):
            reached = [run.figures[column] for run in others]
            found = {GAIN: ours.figures[column] - float(np.mean(reached)),
                     ABOVE_BEST: ours.figures[column] - max(reached)}  # fmt: skip
            gains.append(replace(ours, arm=Arm(gain_label(kind)), figures=found))
    return [*shown, *gains]


EXPERIMENT = Experiment(
    "table3",
    "Table 3: accuracy by type of device",
    [
        arm
        for data in APPLICATIONS
        for arm in (*suite(data), Arm(LITERAL_MOSS, {**suite(data)[0].keys, **LITERAL}, data))
    ],
    (*columns("%"), "accuracy %", GAIN, ABOVE_BEST),
    plots.bars(*columns("%")),
    note="Accuracy of a type is the mean over its devices, each on test samples with its own mix of classes, as a mean "
    "over the evaluations in the last quarter of the rounds (accuracy %: the last evaluation). LotteryFL prunes the "
    "large model for everybody; its accuracies are those of the devices that have the types in Moss's job. The paper's "
    "text has a momentum of 0.05, all rows but one have 0.9 (`momentum` has both for all).",
    rows=with_gains,
    orders=[*most(ACCURACY), *most("small %"), Order(ACCURACY, MOSS, LITERAL_MOSS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
