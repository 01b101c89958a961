"""Table 6 with longer training of the supernet than small scale has elsewhere. Not in the paper.

An operator of the supernet sees a ninth of a layer's steps. At small scale that is 0.55 of the steps of a twin, with
80 rounds in place of 30 it is 1.5 as in the paper, with 160 twice as much. The learning rate falls to the same value;
twins have the rounds that they have elsewhere.
"""

from collections.abc import Sequence

import numpy as np

from evals.fedoras.arms import ACCURACY, fedoras, points, with_twins
from evals.fedoras.points import bars_of
from evals.fedoras.settings import PAPER, main
from evals.fedoras.table6 import GAIN
from evals.fedoras.tiers import RANDOM, SUPERNET, figures_of, results, row
from evals.paper.engine import Arm, Experiment, Run

_DATA = "cifar10-h0.1"
_OF_A_TWIN = int(PAPER.sizes["small"]["fedoras.supernet_rounds"])
LENGTHS = (_OF_A_TWIN, 80, 160)


def label(rounds: int, weights: str) -> str:
    """The row of a length's mean over tiers."""
    return f"{rounds} rounds of the supernet, {weights}"


def _arm(rounds: int) -> Arm:
    if rounds == _OF_A_TWIN:
        return with_twins(_DATA)
    decay = round(float(PAPER.sizes["small"]["decay_factor"]) ** (_OF_A_TWIN / rounds), 6)
    arm = fedoras(_DATA, f"{rounds} rounds", supernet_rounds=rounds, twin_rounds=_OF_A_TWIN)
    return Arm(arm.label, {**arm.keys, "decay_factor": decay}, _DATA, scales=("small",))


def by_length(runs: Sequence[Run]) -> list[Run]:
    """Means over tiers, of the supernet's weights and of random ones, and the gain in the highest tier."""
    rows = []
    for run in runs:
        tiers = results(run)["tiers"]
        rounds = int(run.arm.keys.get("fedoras.supernet_rounds", _OF_A_TWIN))
        found = {weights: [figures_of(tier, weights)[ACCURACY] for tier in tiers] for weights in (SUPERNET, RANDOM)}
        for weights, each in found.items():
            known = np.array(each, dtype=float)
            gain = {GAIN: known[-1] - found[RANDOM][-1]} if weights == SUPERNET else {}
            rows.append(row(run, label(rounds, weights), {ACCURACY: known.mean(), **gain}))
    return rows


EXPERIMENT = Experiment(
    "longer",
    "Supernets that train for longer",
    [_arm(rounds) for rounds in LENGTHS],
    (ACCURACY, GAIN),
    bars_of(ACCURACY),
    note="`test accuracy %` is the mean over tiers; `gain pp` is by how much the supernet's weights are better in the "
    "highest tier. Random weights train for 30 rounds in all rows; each search finds its own networks.",
    rows=by_length,
    orders=[
        *(points(ACCURACY, label(rounds, SUPERNET), label(rounds, RANDOM)) for rounds in LENGTHS),
        *(points(ACCURACY, label(rounds, SUPERNET), label(_OF_A_TWIN, SUPERNET)) for rounds in LENGTHS[1:]),
    ],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
