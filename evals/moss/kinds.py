"""Types whose devices have data of their own kind, as in the paper's third application; public data of few classes.

Transfer has something to win only there: a type alone never sees the others' classes. Not in the paper in this form.
"""

from dataclasses import replace

from evals.moss.arms import (
    ALL_COLUMNS,
    APPLICATIONS,
    AROUND,
    BY_TYPE,
    DISTILLING,
    GLOBAL,
    MOSS,
    baseline,
    fedavg_by_type,
    local,
    more_accurate,
    moss,
)
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Arm, Experiment

KINDS = {"groups_by": "main_class", "public_classes": "dirichlet"}
STATISTICS = "Moss, BatchNorm of the public samples"
LITERAL = "Moss, proxies persist, the largest type transferred too"
BALANCED = "Moss, public data of all classes"


def _arms(data: str) -> list[Arm]:
    ours = [
        moss(data=data),
        moss(STATISTICS, data, bn_statistics="public"),
        moss(LITERAL, data, proxies="persistent", same_arch_transfer="wire"),
        moss(BALANCED, data),
    ]
    others = [*(baseline(label, data) for label in DISTILLING), local(data), fedavg_by_type(data)]
    return [
        replace(arm, keys={**arm.keys, **KINDS, **({"public_classes": "balanced"} if arm.label == BALANCED else {})},
                paper={})
        for arm in (*ours, *others)
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "kinds",
    "Types with data of their own kind",
    [arm for data in APPLICATIONS for arm in _arms(data)],
    (*ALL_COLUMNS, *AROUND),
    plots.bars(*columns("global %")),
    note="Groups take clients in the order of the class that each has most samples of (`groups_by: main_class`), in "
    "all systems alike. Classes of the public samples are drawn from Dirichlet(public_alpha), as in the paper's Table "
    "1. People of UCI HAR have nearly as many samples of each class, so that its types differ by little but people.",
    rows=by_type,
    orders=[more_accurate(label, BY_TYPE, GLOBAL) for label in (MOSS, STATISTICS, LITERAL, *DISTILLING)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
