"""Table 6 with longer training of the supernet than small scale has elsewhere: small alone, and not in the paper.

An operator of the supernet sees a ninth of a layer's steps. At small scale that is 0.55 of the steps of a twin, with
80 rounds in place of 30 it is 1.5 as in the paper, with 160 twice as much. The learning rate falls to the same value;
twins have the rounds that they have elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evals.fedoras.ablation import TIER
from evals.fedoras.arms import ACCURACY, fedoras, points, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import PAPER, main
from evals.fedoras.tiers import RANDOM, SUPERNET, figures_of, results, row
from evals.paper.engine import Arm, Experiment, Run
from evals.paper.orders import Order

_DATA = "cifar10-h0.1"
_OF_A_TWIN = int(PAPER.sizes["small"]["fedoras.supernet_rounds"])
AS_IN_THE_PAPER = 80
LENGTHS = (_OF_A_TWIN, AS_IN_THE_PAPER, 160)
_TIERS = [TIER.format(tier) for tier in range(1, 5)]


def label(rounds: int, weights: str) -> str:
    """The row of a length."""
    return f"{rounds} rounds of the supernet, {weights}"


def _arm(rounds: int) -> Arm:
    if rounds == _OF_A_TWIN:
        return replace(with_twins(_DATA), scales=("small",))
    decay = round(float(PAPER.sizes["small"]["decay_factor"]) ** (_OF_A_TWIN / rounds), 6)
    arm = fedoras(_DATA, f"{rounds} rounds", supernet_rounds=rounds, twin_rounds=_OF_A_TWIN)
    return Arm(arm.label, {**arm.keys, "decay_factor": decay}, _DATA, scales=("small",))


def by_length(runs: Sequence[Run]) -> list[Run]:
    """From the supernet's weights and from random ones: the mean over tiers, and each tier."""
    rows = []
    for run in runs:
        rounds = int(run.arm.keys.get("fedoras.supernet_rounds", _OF_A_TWIN))
        for weights in (SUPERNET, RANDOM):
            each = {tier["tier"]: figures_of(tier, weights)[ACCURACY] for tier in results(run)["tiers"]}
            mean = float(np.mean([value for value in each.values() if value is not None]))
            of_tiers = {TIER.format(tier): value for tier, value in each.items()}
            rows.append(row(run, label(rounds, weights), {ACCURACY: mean, **of_tiers}))
    return rows


def better(rounds: int) -> list[Order]:
    """The supernet's weights above random ones, in each tier."""
    return [points(column, label(rounds, SUPERNET), label(rounds, RANDOM)) for column in _TIERS]


EXPERIMENT = Experiment(
    "longer",
    "Supernets that train for longer",
    [_arm(rounds) for rounds in LENGTHS],
    (ACCURACY, *_TIERS),
    bars_of(ACCURACY),
    note="`test accuracy %` is the mean over tiers. Random weights train for 30 rounds in all rows; each search finds "
    "its own networks.",
    rows=by_length,
    orders=[
        *(points(ACCURACY, label(rounds, SUPERNET), label(rounds, RANDOM)) for rounds in LENGTHS),
        *(points(ACCURACY, label(rounds, SUPERNET), label(_OF_A_TWIN, SUPERNET)) for rounds in LENGTHS[1:]),
        *(order for rounds in LENGTHS for order in better(rounds)),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
