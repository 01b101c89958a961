"""Section 4.5 and 4.7: OPA, the size of subspaces, the validation set and the search, each otherwise (A4, A5)."""

from collections.abc import Sequence
from dataclasses import replace

from evals.fedoras.arms import ACCURACY, FEDORAS, with_twins
from evals.fedoras.arms import fedoras as arm_of
from evals.fedoras.points import bars_of
from evals.fedoras.settings import SUPERNET_DECAY, main
from evals.fedoras.tiers import TIER, mean_and_each, results, row
from evals.paper.experiment import Arm, Experiment, Run
from evals.paper.orders import Order

FEDAVG, HOLDERS, PLAIN = "FedAvg of full models", "FedAvg over holders", "plain mean of full models"
BUFFERS = "OPA of buffers alone (public code)"
RESTING, FALLING = "operators rest that a path leaves out", "falling learning rate"
WHOLE, QUARTER = "whole supernet", "a quarter of it"
_FIRST, _SECOND = "cifar10-h0.1", "cifar10-h1"
TRAFFIC = "supernet MB sent"


def _shorter(data: str, label: str, **keys: object) -> Arm:
    """FedorAS without twins, otherwise in ``own``."""
    return arm_of(data, label, **keys)


def _falling(data: str) -> Arm:
    """The supernet's learning rate falls to a fifth over its rounds; published is a constant one."""
    arm = _shorter(data, FALLING)
    return replace(arm, keys={**arm.keys, "decay_factor": SUPERNET_DECAY}, scales=("smoke", "small"))


def mean_of_tiers(runs: Sequence[Run]) -> list[Run]:
    """A row per job: the mean over tiers, and each tier. With --data two arms may be one job, which has one row."""
    rows: dict[tuple[str, str, int], Run] = {}
    for run in runs:
        label = FEDORAS if run.arm.label == with_twins(_FIRST).label else run.arm.label
        figures = mean_and_each(run) | {TRAFFIC: _supernet_mb(run)}
        mean_row = row(run, label, figures, {label: run.arm.paper})
        rows.setdefault((label, mean_row.data, mean_row.seed), mean_row)
    return list(rows.values())


def _supernet_mb(run: Run) -> float:
    """MB of subspaces, both ways; fine-tuning and twins, which not every arm has, are left out."""
    stage = next(one for one in results(run)["stages"] if one["stage"] == "supernet training")
    return float(stage["download_bytes"] + stage["upload_bytes"]) / 1e6


EXPERIMENT = Experiment(
    "ablation",
    "Sections 4.5 and 4.7: parts of FedorAS",
    [
        with_twins(_FIRST),
        _shorter(_FIRST, FEDAVG, aggregation="fedavg", mean_over="participants"),
        _shorter(_FIRST, HOLDERS, aggregation="fedavg", mean_over="holders"),
        _shorter(_FIRST, PLAIN, aggregation="plain", mean_over="participants"),
        _shorter(_FIRST, "OPA from one client on", opa_min_clients=1),
        _shorter(_FIRST, BUFFERS, opa_scope="buffers_only", mean_over="participants"),
        _shorter(_FIRST, RESTING, idle_gradient="none"),
        _falling(_FIRST),
        _shorter(_FIRST, "random search", search="random"),
        _shorter(_FIRST, "half of the validation set", val_fraction=0.5),
        _shorter(_FIRST, "a fifth of the validation set", val_fraction=0.2),
        _shorter(_FIRST, "BatchNorm measured for each path", recalibrate=True),
        Arm(FEDORAS, with_twins(_SECOND).keys, _SECOND, {ACCURACY: 86.73}),
        arm_of(_SECOND, WHOLE, {ACCURACY: 85.48}, subspace=1.0),
        arm_of(_SECOND, QUARTER, {ACCURACY: 86.50}, subspace=0.25),
        arm_of(_SECOND, "one subspace for all", subspace_per="round"),
    ],
    (ACCURACY, *(TIER.format(tier) for tier in range(1, 5)), TRAFFIC),
    bars_of(ACCURACY),
    note="`test accuracy %` is the mean over tiers. FedorAS sends half of the supernet and averages by OPA. "
    "FedAvg of full models averages each operator over all participants by what they trained on, unchanged copies too "
    "(section 3.1: normalised collectively for full models). FedAvg over holders averages over those who were sent it, "
    "which is most of OPA. The plain mean takes all participants alike. The public code's OPA differs from FedAvg only "
    "in BatchNorm's buffers: compare its row with FedAvg of full models.",
    rows=mean_of_tiers,
    orders=[*(Order(ACCURACY, FEDORAS, other) for other in (FEDAVG, HOLDERS, PLAIN, BUFFERS, RESTING, FALLING)),
            Order(ACCURACY, BUFFERS, FEDAVG),
            Order(ACCURACY, FEDORAS, WHOLE, data="cifar10-h1"), Order(ACCURACY, FEDORAS, QUARTER, data="cifar10-h1")],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
