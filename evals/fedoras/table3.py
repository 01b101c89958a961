"""Table 3: FedorAS and FedNAS across devices: accuracy, and the peak memory of a step (claim A8)."""

from collections.abc import Mapping
from typing import Any

from evals.fedoras.arms import ACCURACY, FEDORAS, PEAK, with_twins
from evals.fedoras.searches import BEST, FEDNAS, best_tiers
from evals.fedoras.settings import main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order
from evals.paper.papers import SCALES

_PUBLISHED = {"cifar10-h1": ((90.02, 3837), (85.45, 1919), (86.46, 1996)),
              "cifar10-h0.1": ((65.28, 3837), (54.84, 1919), (81.53, 1996))}  # fmt: skip
# alphas move by their learning rate at most in a step: with the published one hardly in so few
FAST_ALPHAS = "FedNAS, alphas at 0.02"
_BATCHES = {"smoke": (8, 4), "small": (32, 16), "paper": (128, 64)}


def _arms(data: str) -> list[Arm]:
    whole, half, ours = (dict(zip((ACCURACY, PEAK), values, strict=True)) for values in _PUBLISHED[data])
    arms = []
    for scale in SCALES:
        arms += [_fednas("FedNAS", data, whole, {}, scale),
                 _fednas("FedNAS, half the batch", data, half, {"batch_size": _BATCHES[scale][1]}, scale)]  # fmt: skip
        if scale != "paper":
            arms.append(_fednas(FAST_ALPHAS, data, {}, {"fednas.alpha_lr": 0.02}, scale))
    fedoras = with_twins(data)
    return [*arms, Arm(fedoras.label, fedoras.keys, data, ours)]


def _fednas(label: str, data: str, paper: Mapping[str, float], keys: dict[str, Any], scale: str) -> Arm:
    # as many rounds of the derived network as of the search; a step of it takes twenty of a path at small scale
    small: dict[str, Any] = {} if scale == "paper" else {"rounds": {"smoke": 2, "small": 40}[scale], "local_epochs": 1}
    return Arm(label, {**FEDNAS, **small, **keys}, data, paper, scales=(scale,))


EXPERIMENT = Experiment(
    "table3",
    "Table 3: federated architecture search across devices",
    [arm for data in _PUBLISHED for arm in _arms(data)],
    (ACCURACY, PEAK, "TMACs", "network MB"),
    plots.bars(ACCURACY, PEAK),
    note="Peak memory is that of a client's step: weights, gradients, momentum and what the backward pass needs. It is "
    "of all operators at once (FedNAS) or of a path (FedorAS, its highest tier). The paper's FedNAS searches "
    "DARTS's space, here it searches FedorAS's; at small scale for 20 of its 40 rounds, one epoch each. The "
    "learning rate of its alphas is the published 0.0003, with which they hardly move in so few steps. A further "
    "row has 0.02. Where there is no such row, FedNAS is older and has 0.02. FedorAS's accuracy is that of its "
    "best tier, as in the paper; its TMACs and MB are those of all tiers, without rand-init.",
    rows=best_tiers,
    orders=[*BEST, Order(ACCURACY, FEDORAS, FAST_ALPHAS)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
