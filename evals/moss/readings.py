"""What the text leaves open of Moss and of the types that baselines prune, read in other ways. Not in the paper."""

from functools import partial
from typing import Any

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, BASELINES, MOSS, moss
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns, with_types
from evals.paper.engine import Arm, Experiment
from evals.paper.orders import Order

READINGS: dict[str, dict[str, Any]] = {
    MOSS: {},
    "the largest type transferred too": {"moss.same_arch_transfer": "wire"},
    "meta-networks learn jointly (Algorithm 2)": {"moss.meta_update": "joint"},
    "meta-networks stay as they began": {"moss.meta_update": "frozen"},
    "meta-networks anew in each round": {"moss.persistent": False},
    "public data of few classes": {"public_classes": "dirichlet"},
    "a tenth of the learning rate on the server": {"moss.lr": 0.001},
}
_MATCHED = ("Hermes", "TailorFL", "FedMask", "FedSkel")


def matched(label: str) -> str:
    """The row of a system whose types have as many parameters as Moss's."""
    return f"{label}, as small as Moss's types"


def _arms(data: str) -> list[Arm]:
    ours = [Arm(label, {**moss().keys, **keys}, data) for label, keys in READINGS.items()]
    pruned = []
    for label in _MATCHED:
        method = BASELINES[label]["method"]
        given = {f"{method}.param_ratio": None, f"{method}.match_params": ["$large", "$medium", "$small"]}
        pruned += [Arm(label, BASELINES[label], data), Arm(matched(label), {"method": method, **given}, data)]
    return [*ours, *pruned]


EXPERIMENT = Experiment(
    "readings",
    "What the text leaves open, read otherwise",
    [arm for data in APPLICATIONS for arm in _arms(data)],
    ALL_COLUMNS,
    plots.bars(*columns("%")),
    rows=partial(with_types, reference=MOSS),
    orders=[
        *(Order(ACCURACY, MOSS, label) for label in READINGS if label != MOSS),
        *(Order(ACCURACY, matched(label), label) for label in _MATCHED),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
