"""Figure 1: random architectures by size, trained by those who can (tier-aware) and by all (claim A9)."""

from collections.abc import Sequence
from typing import Any

from evals.fedoras.arms import ACCURACY, FEDORAS, MMACS, fedoras, with_twins
from evals.fedoras.points import kinds
from evals.fedoras.settings import TWIN_ROUNDS, main
from evals.fedoras.tiers import RANDOM, figures_of, results, row
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order

AWARE, UNAWARE = "tier-aware", "tier-unaware"
# a supernet of one round is as good as random, and so is the first of random paths
_RANDOM: dict[str, Any] = {"supernet_rounds": 1, "search": "random", "evaluations": 1, "val_fraction": 0.02,
                           "finetune_rounds": 0, "twin_rounds": TWIN_ROUNDS}  # fmt: skip


def label(kind: str, tier: int) -> str:
    return f"{kind}, tier {tier}"


def random_architectures(data: str, kinds: Sequence[str] = (AWARE, UNAWARE)) -> list[Arm]:
    """An architecture of each tier, another one for each seed; the same ones in both arms."""
    clients = {AWARE: "eligible", UNAWARE: "all"}
    return [fedoras(data, f"random architectures, {kind}", **_RANDOM, twin_clients=clients[kind]) for kind in kinds]


def by_architecture(runs: Sequence[Run]) -> list[Run]:
    """A row per tier of each job: random architectures from random weights, FedorAS's from the supernet's."""
    rows = []
    for run in runs:
        kind = run.arm.label.rpartition(", ")[2] if run.arm.label.startswith("random") else FEDORAS
        for tier in results(run)["tiers"]:
            figures = figures_of(tier) if kind == FEDORAS else figures_of(tier, RANDOM)
            rows.append(row(run, label(kind, tier["tier"]), {name: figures[name] for name in (ACCURACY, MMACS)}))
    return rows


EXPERIMENT = Experiment(
    "fig1",
    "Figure 1: random architectures under capacity limits",
    [arm for data in ("cifar10-h0.1", "cifar10-h1") for arm in (*random_architectures(data), with_twins(data))],
    (ACCURACY, MMACS),
    kinds(MMACS, ACCURACY),
    note="Each seed draws another architecture for each tier (the paper: 160, as many as 40 seeds), trained by FedAvg "
    "for as many rounds as rand-init: by clients of the tier and above, or by all.",
    rows=by_architecture,
    orders=[Order(ACCURACY, label(UNAWARE, 4), label(AWARE, 4)), Order(ACCURACY, label(FEDORAS, 4), label(AWARE, 4)),
            Order(ACCURACY, label(AWARE, 1), label(AWARE, 4))],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
