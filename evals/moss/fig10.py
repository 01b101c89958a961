"""Figure 10: public data of another task (claim M10)."""

from dataclasses import replace
from typing import Any

from evals.moss.arms import (
    ACCURACY,
    ALL_COLUMNS,
    APPLICATIONS,
    DISTILLING,
    ENERGY,
    MOSS,
    PRUNING,
    ROUNDS,
    SECONDS,
    baseline,
    more_accurate,
    moss,
    most,
)
from evals.moss.rows import by_type
from evals.moss.settings import UNRELATED, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment

SAME_TASK = "Moss, public data of the same task"
MEASURED = "Moss, BatchNorm measured on devices' samples"
_NEEDS_LABELS = "FedGEMS"
STILL_BEST = most(ACCURACY, [label for label in (*PRUNING, *DISTILLING) if label != _NEEDS_LABELS])


def _unrelated(arm: Arm, **keys: Any) -> Arm:
    return replace(arm, keys={**arm.keys, "public_dir": UNRELATED, **keys}, paper={})


EXPERIMENT = Experiment(
    "fig10",
    "Figure 10: public data of another task",
    [
        arm
        for data in APPLICATIONS
        for arm in (
            _unrelated(moss(data=data)),
            replace(_unrelated(moss(data=data), bn_statistics="federated"), label=MEASURED),
            replace(moss(data=data), label=SAME_TASK, paper={}),
            *(replace(baseline(label, data), paper={}) for label in PRUNING),
            *(_unrelated(baseline(label, data)) for label in DISTILLING if label != _NEEDS_LABELS),
        )
    ],
    ALL_COLUMNS,
    plots.bars(ROUNDS, SECONDS, ENERGY, ACCURACY),
    note="CIFAR-100 for CIFAR-10, spoken digits for spoken words. UCI HAR has handwriting; the paper has hand gestures "
    "for depth images. Students learn the teachers' outputs, as there are no labels. Systems that prune use no "
    "public data. Their rows are those of table 3, where clients lack the samples that became public. With public "
    "data of another task, clients of Moss and of systems that distil also train on these samples. FedGEMS needs "
    "labels and is left out. The server's students train on the public samples last, so BatchNorm's running "
    "statistics are those of these samples. The second row is tested with statistics of the devices' samples.",
    rows=by_type,
    orders=[*STILL_BEST, more_accurate(MOSS, SAME_TASK), more_accurate(MEASURED, MOSS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
