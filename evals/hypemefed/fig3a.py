"""Figure 3a: multi-exit networks and hypernetworks, each with and without (claim H3)."""

from evals.hypemefed.arms import GLOBAL, HYPEMEFED, LARGEST, OWN_EXIT, SMALLEST, STALE, baseline, hypemefed, stale
from evals.hypemefed.settings import BACKBONE, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.job_keys import Keys
from evals.paper.orders import Order

ON_OFF, OFF_ON, NONE = "multi-exit alone", "hypernetwork alone", "neither"
_PRELIMINARY = {BACKBONE: "cnn3"}  # the paper's: Fashion-MNIST, IID, three convolutions


def _arms(data: str, network: Keys) -> list[Arm]:
    arms = [
        baseline(LARGEST, data),
        hypemefed(data=data),
        hypemefed(ON_OFF, data, missing="trained"),
        hypemefed(OFF_ON, data, multi_exit=False),
        hypemefed(NONE, data, multi_exit=False, missing="trained"),
        baseline(SMALLEST, data),
        # not in the paper: what generated weights are worth beside others in their place
        stale(data),
        hypemefed("random weights instead", data, missing="random"),
    ]
    return [Arm(arm.label, {**arm.keys, **network}, data) for arm in arms]


EXPERIMENT = Experiment(
    "fig3a",
    "Figure 3a: multi-exit networks and hypernetworks",
    [*_arms("unimib", {}), *_arms("svhn", {}), *_arms("fashionmnist-iid", _PRELIMINARY)],
    (GLOBAL, OWN_EXIT, "global %", "accuracy %"),
    plots.grouped(GLOBAL),
    note="Without hypernetworks, a layer is the mean over those who trained it. Old layers in place of generated ones "
    "are what the public code's rounds amount to; the paper has neither these nor random ones. BatchNorm's statistics "
    "are re-estimated before the tests of all rows; rows without `accuracy, late %` are older, and were tested with "
    "those of training.",
    orders=[
        Order(GLOBAL, more, less)
        for more, less in (
            (HYPEMEFED, ON_OFF), (HYPEMEFED, OFF_ON), (ON_OFF, NONE), (OFF_ON, NONE), (HYPEMEFED, NONE),
            (LARGEST, HYPEMEFED), (HYPEMEFED, "random weights instead"), (HYPEMEFED, STALE))
    ],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
