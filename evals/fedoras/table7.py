"""Table 7: how even accuracy is over clients, each with its tier's model (claim A6); the jobs of Table 6."""

from collections.abc import Sequence

from evals.fedoras.arms import FEDORAS, MEAN, SPREAD, WORST, with_twins
from evals.fedoras.settings import main
from evals.fedoras.tiers import RANDOM, results, row
from evals.paper import plots
from evals.paper.experiment import Experiment, Run
from evals.paper.orders import Order

_LABELS = {"supernet": FEDORAS, "random": RANDOM}
_PUBLISHED = {
    "cifar10-h0.1": {FEDORAS: (81.36, 8.58, 47.0), RANDOM: (65.70, 13.11, 11.0)},
    "cifar100-h0.1": {FEDORAS: (45.61, 13.15, 5.0), RANDOM: (31.08, 12.12, 0.0)},
}
PUBLISHED = {
    data: {label: dict(zip((MEAN, SPREAD, WORST), values, strict=True)) for label, values in rows.items()}
    for data, rows in _PUBLISHED.items()
}
TIERS = range(1, 6)
_COLUMNS = {tier: (f"tier {tier} %", f"tier {tier} std %") for tier in TIERS}


def over_clients(runs: Sequence[Run]) -> list[Run]:
    """A row per kind of weights: mean, standard deviation and worst over all clients, and by tier."""
    rows = []
    for run in runs:
        job_results = results(run)
        for each in job_results["fairness"]:
            figures = {MEAN: 100 * each["mean"], SPREAD: 100 * each["std"], WORST: 100 * each["worst"]}
            prefix = "" if each["weights"] == "supernet" else "twin_"
            for tier in job_results["tiers"]:
                values = (tier.get(f"{prefix}client_{name}") for name in ("mean", "std"))
                for column, value in zip(_COLUMNS[tier["tier"]], values, strict=True):
                    figures[column] = None if value is None else 100 * value
            rows.append(row(run, _LABELS[each["weights"]], figures, PUBLISHED.get(run.arm.data)))
    return rows


EXPERIMENT = Experiment(
    "table7",
    "Table 7: accuracy of individual clients",
    [with_twins(data) for data in ("cifar10-h0.1", "cifar100-h0.1", "shakespeare")],
    (MEAN, SPREAD, WORST, *(column for tier in range(1, 5) for column in _COLUMNS[tier])),
    plots.bars(MEAN, SPREAD, WORST),
    note="Each client's own test samples, by its tier's model. The paper has perplexities of Shakespeare's clients, "
    "which `texts` has; here these clients have accuracies as all others.",
    rows=over_clients,
    orders=[Order(SPREAD, RANDOM, FEDORAS), Order(WORST, FEDORAS, RANDOM)],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
