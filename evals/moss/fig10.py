"""Figure 10: public data of another task (claim M10)."""

from dataclasses import replace
from functools import partial

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
    moss,
)
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import with_types
from evals.paper.engine import Arm, Experiment
from evals.paper.orders import Order

SAME_TASK = "Moss, public data of the same task"
_NEEDS_LABELS = "FedGEMS"
RIVALS = tuple(label for label in (*PRUNING, *DISTILLING) if label != _NEEDS_LABELS)


def _unrelated(arm: Arm) -> Arm:
    return replace(arm, keys={**arm.keys, "public_dir": "$unrelated"}, paper={})


EXPERIMENT = Experiment(
    "fig10",
    "Figure 10: public data of another task",
    [
        arm
        for data in APPLICATIONS
        for arm in (
            _unrelated(moss(data=data)),
            replace(moss(data=data), label=SAME_TASK, paper={}),
            *(replace(baseline(label, data), paper={}) for label in PRUNING),
            *(_unrelated(baseline(label, data)) for label in DISTILLING if label != _NEEDS_LABELS),
        )
    ],
    ALL_COLUMNS,
    plots.bars(ROUNDS, SECONDS, ENERGY, ACCURACY),
    note="CIFAR-100 for CIFAR-10, spoken digits for spoken words; handwriting for UCI HAR, where the paper has "
    "hand gestures for depth images. Students learn the teachers' outputs, as there are no labels. Systems that prune "
    "use no public data, so that they are table 3's; FedGEMS needs labels and is left out. Clients keep the samples "
    "that public data of the same task are taken from.",
    rows=partial(with_types, reference=MOSS),
    orders=[*(Order(ACCURACY, MOSS, label) for label in RIVALS), Order(ACCURACY, MOSS, SAME_TASK)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
