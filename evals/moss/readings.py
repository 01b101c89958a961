"""What the text leaves open of Moss and of the types that baselines prune, read in other ways. Not in the paper."""

from typing import Any

from evals.moss.arms import (
    ALL_COLUMNS,
    APPLICATIONS,
    AROUND,
    BASELINES,
    MOSS,
    SHARES,
    TEXT_RATES,
    baseline,
    more_accurate,
    moss,
)
from evals.moss.rows import by_type
from evals.moss.settings import LARGE, MEDIUM, PAPER, PROXY_STAGE_TAPS, SMALL, STAGE_TAPS, THIRD, main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Arm, Experiment
from evals.paper.papers import SCALES

L2T_PAIRS = {"moss.taps": STAGE_TAPS, "moss.proxy_taps": PROXY_STAGE_TAPS, "moss.beta": 0.5}
READINGS: dict[str, dict[str, Any]] = {
    MOSS: {},
    "the largest type transferred too": {"moss.same_arch_transfer": "wire"},
    "proxies persist (Algorithm 1)": {"moss.proxies": "persistent"},
    "proxies persist, the largest type transferred too": {
        "moss.proxies": "persistent",
        "moss.same_arch_transfer": "wire",
    },
    "BatchNorm of the public samples after transfers": {"moss.bn_statistics": "public"},
    "mean over pairs of layers": {"moss.pair_reduce": "mean"},
    "projections begin by least squares": {"moss.projection_start": "least_squares"},
    "L2T-ww's pairs and weight": L2T_PAIRS,
    "learning rate 0.001 and momentum 0.05 (the text)": TEXT_RATES,
    "meta-networks learn jointly (Algorithm 2)": {"moss.meta_update": "joint"},
    "meta-networks stay as they began": {"moss.meta_update": "frozen"},
    "meta-networks anew in each round": {"moss.persistent": False},
    "public data of few classes": {"public_classes": "dirichlet"},
    "four times the epochs of WIRE": {"moss.epochs": 20},
    "momentum 0.5, on devices and server": {"client_momentum": 0.5, "moss.momentum": 0.5},
    "half of the matching's weight (L2T-ww)": {"moss.beta": 0.5},
    "a tenth of the matching's weight": {"moss.beta": 0.1},
    "meta-networks learn ten times as fast": {"moss.meta_lr": 1e-3},
    "meta-networks learn a hundred times as fast": {"moss.meta_lr": 1e-2},
}
RATES = {"a tenth of the learning rate on the server": 0.1, "three times the learning rate on the server": 3.0}
_AS_PUBLISHED = {"FedDF": {"feddf.steps": 10_000, "feddf.patience": 1_000}}  # small scale has fewer steps
_MATCHED = ("Hermes", "TailorFL", "FedMask", "FedSkel")


def matched(label: str) -> str:
    """The row of a system whose types have as many parameters as Moss's."""
    return f"{label}, as small as Moss's types"


def small_from_the_start(label: str) -> str:
    """The row of a system that prunes whose devices begin at their types' sizes."""
    return f"{label}, begins at its types' sizes"


def as_published(label: str) -> str:
    """The row of a system whose server takes as many steps as its paper says."""
    return f"{label}, as many steps on the server as published"


def _arms(data: str) -> list[Arm]:
    ours = [Arm(label, {**moss().keys, **keys}, data) for label, keys in READINGS.items()]
    for label, factor in RATES.items():
        rates = {scale: round(factor * PAPER.sizes[scale]["learning_rate"], 9) for scale in SCALES}
        ours += [Arm(label, {**moss().keys, "moss.lr": rate}, data, scales=(scale,)) for scale, rate in rates.items()]
    pruned = []
    for label in _MATCHED:
        method = BASELINES[label]["method"]
        sizes = {f"{method}.param_ratio": None, f"{method}.match_params": [LARGE, MEDIUM, SMALL]}
        pruned += [Arm(label, BASELINES[label], data), Arm(matched(label), {"method": method, **sizes}, data)]
    longer = [Arm(as_published(label), {**baseline(label).keys, **keys}, data, scales=("small",))
              for label, keys in _AS_PUBLISHED.items()]  # fmt: skip
    third = [THIRD] * len(SHARES)
    small = {
        "Hermes": {"hermes.start": "type"},
        "LotteryFL": {"lotteryfl.param_ratio": SHARES, "lotteryfl.groups": third},
    }
    pruned += [Arm(small_from_the_start(label), {**BASELINES[label], **keys}, data) for label, keys in small.items()]
    pruned.append(Arm("LotteryFL", BASELINES["LotteryFL"], data))
    return [*ours, *pruned, *(baseline(label, data) for label in _AS_PUBLISHED), *longer]


EXPERIMENT = Experiment(
    "readings",
    "What the text leaves open, read otherwise",
    [arm for data in APPLICATIONS for arm in _arms(data)],
    (*ALL_COLUMNS, *AROUND),
    plots.bars(*columns("%")),
    note="With L2T-ww's rate of 0.0001, the meta-networks take a few hundred steps in a job. Then bilevel hardly "
    "differs from meta-networks that stay as they began. A gain from their learning shows, if at all, with a larger "
    "rate.",
    rows=by_type,
    orders=[
        *(more_accurate(MOSS, label) for label in (*READINGS, *RATES) if label != MOSS),
        *(more_accurate(matched(label), label) for label in _MATCHED),
        *(more_accurate(small_from_the_start(label), label) for label in ("Hermes", "LotteryFL")),
        *(more_accurate(as_published(label), label) for label in _AS_PUBLISHED),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
