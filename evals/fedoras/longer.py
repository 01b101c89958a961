"""Table 6 with supernets that train for longer than a twin does, in rounds. Not in the paper.

An operator of the supernet sees a ninth of a layer's steps. At small scale that is 0.55 of the steps of a twin in as
many rounds, with 80 rounds in place of 30 it is 1.5 as in the paper, with 160 twice as much. The learning rate falls to
the same value; twins have the rounds that they have elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace

from evals.fedoras.arms import ACCURACY, fedoras, points, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import PAPER, main
from evals.fedoras.tiers import RANDOM, SUPERNET, TIER, mean_and_each, row
from evals.paper.engine import Arm, Experiment, Run
from evals.paper.orders import Order
from evals.paper.papers import SCALES

_DATA = "cifar10-h0.1"
AS_IN_THE_PAPER = 8 / 3
TIMES = (1.0, AS_IN_THE_PAPER, 16 / 3)
_TIERS = [TIER.format(tier) for tier in range(1, 5)]


def label(times: float, weights: str) -> str:
    """The row of a length."""
    return f"{times:.1f} times the rounds, {weights}"


def _arms(times: float) -> list[Arm]:
    """One at each scale."""
    if times == 1:
        return [with_twins(_DATA)]
    made = []
    for scale in SCALES:
        sizes = PAPER.keys_of(PAPER.data_at(_DATA, scale), scale)
        rounds = {"supernet_rounds": round(times * sizes["$supernet_rounds"]), "twin_rounds": sizes["$supernet_rounds"]}
        own = fedoras(_DATA, f"{times:.1f} times the rounds", **rounds)
        decay = round(float(sizes.get("decay_factor", 1.0)) ** (1 / times), 6)
        made.append(replace(own, keys={**own.keys, "decay_factor": decay}, x=times, scales=(scale,)))
    return made


def by_length(runs: Sequence[Run]) -> list[Run]:
    """From the supernet's weights and from random ones: the mean over tiers, and each tier."""
    return [
        row(run, label(run.arm.x or 1.0, weights), mean_and_each(run, weights))
        for run in runs
        for weights in (SUPERNET, RANDOM)
    ]


def better(times: float) -> list[Order]:
    """The supernet's weights above random ones, in each tier."""
    return [points(column, label(times, SUPERNET), label(times, RANDOM)) for column in _TIERS]


EXPERIMENT = Experiment(
    "longer",
    "Supernets that train for longer",
    [arm for times in TIMES for arm in _arms(times)],
    (ACCURACY, *_TIERS),
    bars_of(ACCURACY),
    note="`test accuracy %` is the mean over tiers. The supernet trains for so many times the rounds of random "
    "weights, which have as many in all rows; each search finds its own networks.",
    rows=by_length,
    orders=[
        *(points(ACCURACY, label(times, SUPERNET), label(times, RANDOM)) for times in TIMES),
        *(points(ACCURACY, label(times, SUPERNET), label(1, SUPERNET)) for times in TIMES[1:]),
        *(order for times in TIMES for order in better(times)),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
