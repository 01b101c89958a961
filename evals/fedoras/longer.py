"""Table 6 with supernets that train for shorter and longer. Not in the paper.

An operator of the supernet sees a ninth of a layer's steps, at small scale in 80 rounds 1.5 times those of random
weights in 30, as in the paper. In 30 rounds it is 0.55, in 160 rounds 3. Random weights have the rounds that they
have elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from evals.fedoras.arms import ACCURACY, fedoras, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import PAPER, SUPERNET_ROUNDS, TWIN_ROUNDS, main
from evals.fedoras.tiers import RANDOM, SUPERNET, TIER, mean_and_each, row
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order
from evals.paper.papers import SCALES

_DATA = "cifar10-h0.1"
TIMES = (0.375, 1.0, 2.0)
_TIERS = [TIER.format(tier) for tier in range(1, 5)]


def label(times: float, weights: str) -> str:
    """The row of a length."""
    return f"{times:.1f} times the rounds, {weights}"


def _arms(times: float) -> list[Arm]:
    """One at each scale."""
    if times == 1:
        return [with_twins(_DATA)]
    arms = []
    for scale in SCALES:
        sizes = PAPER.keys_of(PAPER.data_at(_DATA, scale), scale)
        rounds = max(1, round(times * sizes[SUPERNET_ROUNDS]))
        arm = fedoras(_DATA, f"{times:.1f} times the rounds", supernet_rounds=rounds, twin_rounds=TWIN_ROUNDS)
        arms.append(replace(arm, x=times, scales=(scale,)))
    return arms


def by_length(runs: Sequence[Run]) -> list[Run]:
    """From the supernet's weights and from random ones: the mean over tiers, and each tier."""
    return [
        row(run, label(run.arm.x or 1.0, weights), mean_and_each(run, weights))
        for run in runs
        for weights in (SUPERNET, RANDOM)
    ]


EXPERIMENT = Experiment(
    "longer",
    "Supernets that train for shorter and longer",
    [arm for times in TIMES for arm in _arms(times)],
    (ACCURACY, *_TIERS),
    bars_of(ACCURACY),
    note="`test accuracy %` is the mean over tiers. The supernet trains for so many times the rounds of Table 6. "
    "Networks with random weights train equally long in all rows. Each search finds its own networks.",
    rows=by_length,
    orders=[
        *(Order(ACCURACY, label(times, SUPERNET), label(times, RANDOM)) for times in TIMES),
        *(Order(ACCURACY, label(more, SUPERNET), label(less, SUPERNET)) for less, more in pairwise(TIMES)),
        *(Order(column, label(times, SUPERNET), label(times, RANDOM)) for times in TIMES for column in _TIERS),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
