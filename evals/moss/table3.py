"""Table 3: accuracy by type of device (claims M1 to M3)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evals.moss.arms import (
    ACCURACY,
    APPLICATIONS,
    AROUND,
    BASELINES,
    GLOBAL,
    LITERAL,
    MOSS,
    PERSONALISED,
    SHARES,
    more_accurate,
    most,
    suite,
)
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import KEPT, TYPES, columns
from evals.paper.experiment import Arm, Experiment, Run

LITERAL_MOSS = "Moss, momentum 0.05"
GAIN, ABOVE_BEST, COUNTED = "above the mean baseline, pp", "above the best baseline, pp", "baselines counted"
_LARGER = 1.5  # times the share that a type is to keep


def gain_label(kind: str) -> str:
    """The row of a type's gains."""
    return f"Moss's gain, {kind}"


def gains(shown: Sequence[Run]) -> list[Run]:
    """Of runs by type of device, a row for each type: what Moss gains there over the baselines, where all of them have
    finished and are told by type. There a baseline counts whose devices of the type hold no more of the large model
    than they are to: LotteryFL and FedSkel have networks for small devices that these could not run, and Hermes until
    it has pruned."""
    rows = []
    for ours in (run for run in shown if run.arm.label == MOSS):
        others = [run for run in shown
                  if (run.data, run.seed) == (ours.data, ours.seed) and run.arm.label in BASELINES
                  and set(columns("%")) <= set(run.figures)]  # fmt: skip
        if len(others) < len(BASELINES):
            continue
        for kind, share in zip(TYPES, SHARES, strict=True):
            column, most_kept = f"{kind} %", 100 * _LARGER * share
            reached = [run.figures[column] for run in others if run.figures.get(f"{kind} {KEPT}", 0.0) <= most_kept]
            gain_figures = {GAIN: ours.figures[column] - float(np.mean(reached)),
                     ABOVE_BEST: ours.figures[column] - max(reached), COUNTED: float(len(reached))}  # fmt: skip
            rows.append(replace(ours, arm=Arm(gain_label(kind)), figures=gain_figures))
    return rows


EXPERIMENT = Experiment(
    "table3",
    "Table 3: accuracy by type of device",
    [
        arm
        for data in APPLICATIONS
        for arm in (*suite(data), Arm(LITERAL_MOSS, {**suite(data)[0].keys, **LITERAL}, data))
    ],
    (
        *columns("%"),
        *columns("global %"),
        *columns("personalised %"),
        *AROUND,
        *columns(KEPT),
        "accuracy %",
        GAIN,
        ABOVE_BEST,
        COUNTED,
    ),
    plots.bars(*columns("%")),
    note="Accuracy of a type is the mean over its devices, each on its own test samples, with its mix of classes. %: "
    "the mean over the evaluations in the last quarter of the rounds; accuracy %: the last evaluation. Of the "
    "final models: global % is on all devices' test samples, personalised % after five epochs on a device's own "
    "samples. before training % and after training % are around the local training of one more round, on its own "
    "test samples. They come after the server's step, and after what a device learns from its message. kept % is "
    "the share of the large model that a device holds. Systems whose clients keep models (FedMD, DS-FL, FedGEMS) "
    "or parts (those that prune, except HeteroFL and FjORD) do well on a device's own samples. Those with a model for "
    "a type (Moss, FedDF, Fed-ET) do well globally: look at both, and at local training. LotteryFL prunes the large "
    "model for all clients; its figures are those of the devices that have the types in Moss's job. Gains leave "
    "out baselines whose devices of a type hold over one and a half times their intended share. The paper's text has "
    "a momentum of 0.05, all rows but one have 0.9 (`momentum` has both for all).",
    rows=by_type,
    derived=gains,
    orders=[*most(ACCURACY), *most(GLOBAL), *most(PERSONALISED), *most("small %"), more_accurate(MOSS, LITERAL_MOSS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
