"""Figure 13 and section 5.4: ResNet-18 on CIFAR-100, and ten exits on Fashion-MNIST (claim H11)."""

from dataclasses import replace

from evals.hypemefed.arms import (
    BETWEEN,
    COLUMNS,
    GLOBAL,
    HYPEMEFED,
    LARGEST,
    OFF,
    SMALLEST,
    baseline,
    hypemefed,
    off,
)  # fmt: skip
from evals.hypemefed.settings import BACKBONE, GROUPED, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import Keys
from evals.paper.orders import Order

SCALED = "HypeMeFed, generated layers scaled"
_TEN: Keys = {BACKBONE: "cnn10", **{f"{method}.groups": [5] * 10 for method in GROUPED}}


def ten_exits() -> list[Arm]:
    """Ten exits, five clients each."""
    data = "fashionmnist"
    published = {HYPEMEFED: {GLOBAL: 89.47}, SMALLEST: {GLOBAL: 85.76}}
    arms = [
        baseline(LARGEST, data),
        hypemefed(data=data, k="all"),
        hypemefed(SCALED, data, k="all", rescale=True),
        off(data),
        baseline(SMALLEST, data),
    ]
    internals = {"record_internals": True}  # for Figure 14
    return [
        replace(arm, keys={**arm.keys, **_TEN, **(internals if arm.label == HYPEMEFED else {})},
                paper=published.get(arm.label, {}))
        for arm in arms
    ]  # fmt: skip


EXPERIMENT = Experiment(
    "fig13",
    "Figure 13: larger and deeper networks",
    [
        baseline(LARGEST, "cifar100"),
        hypemefed(data="cifar100"),
        off("cifar100"),
        baseline(SMALLEST, "cifar100"),
        *ten_exits(),
    ],
    COLUMNS,
    plots.by_round,
    note="ResNet-18 on CIFAR-100 has a quarter of its channels and 3,600 pictures at small scale. The network of ten "
    "exits on Fashion-MNIST has all singular components; its published figures are those of section 5.4. With ten "
    "exits, a row scales generated layers to the norm of trained ones, which is not in the paper.",
    orders=[*BETWEEN, Order(GLOBAL, OFF, SMALLEST), Order(GLOBAL, SCALED, HYPEMEFED), Order(GLOBAL, SCALED, OFF)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
