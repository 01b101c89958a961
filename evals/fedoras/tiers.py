"""What FedorAS's jobs say of each tier, as rows of tables: its model from the supernet's weights and from random ones,
beside how even accuracy is over clients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Any

from evals.fedoras.arms import ACCURACY, KPARAMS, MMACS, PEAK, PERPLEXITY, SPREAD, WORST
from evals.paper.experiment import Run
from evals.paper.jobs import summary

SUPERNET, RANDOM = "supernet", "rand-init"
TIER = "tier {} %"
_PREFIX = {SUPERNET: "", RANDOM: "twin_"}
Published = Mapping[str, Mapping[str, float]]  # of rows by label: figures by column


def results(run: Run) -> dict[str, Any]:
    """What a finished job of FedorAS has to show of its method."""
    job_results: dict[str, Any] = summary(run.job)["results"]
    return job_results


def row(run: Run, label: str, figures: Mapping[str, float | None], published: Published | None = None) -> Run:
    """A row beside a job's; figures that are None are left out."""
    known = {name: float(value) for name, value in figures.items() if value is not None}
    paper = (published or {}).get(label, {})
    return replace(run, arm=replace(run.arm, label=label, paper=paper), figures=known)


def tier_label(tier: int, weights: str = SUPERNET) -> str:
    return f"tier {tier}, {weights}"


def has_twins(tier: Mapping[str, Any]) -> bool:
    return tier.get("twin_accuracy") is not None


def figures_of(tier: Mapping[str, Any], weights: str = SUPERNET) -> dict[str, float | None]:
    """A tier's figures in the units of tables; perplexity is that of all test samples together."""
    prefix = _PREFIX[weights]

    def share(name: str) -> float | None:
        value = tier.get(f"{prefix}{name}")
        return None if value is None else 100 * value

    loss = tier.get(f"{prefix}loss")
    return {
        ACCURACY: share("accuracy"),
        PERPLEXITY: None if loss is None else exp(min(loss, 700.0)),
        MMACS: tier["mmacs"],
        KPARAMS: tier["parameters"] / 1e3,
        SPREAD: share("client_std"),
        WORST: share("client_worst"),
        PEAK: tier["peak_mb"],
    }


def mean_and_each(run: Run, weights: str = SUPERNET) -> dict[str, float]:
    """Accuracy in each tier and their mean; zero where a model was not tested, as it had diverged."""
    by_tier = {TIER.format(tier["tier"]): figures_of(tier, weights)[ACCURACY] or 0.0 for tier in results(run)["tiers"]}
    return {ACCURACY: sum(by_tier.values()) / len(by_tier), **by_tier}


def each_tier(run: Run, published: Published | None = None, *, twins: bool = True) -> list[Run]:
    """Rows of a job: a tier from the supernet's weights, then from random ones where there are some."""
    rows = []
    for tier in results(run)["tiers"]:
        for weights in (SUPERNET, RANDOM) if twins and has_twins(tier) else (SUPERNET,):
            label = tier_label(tier["tier"], weights)
            rows.append(row(run, label, figures_of(tier, weights), published))
    return rows


def by_tier(published: Mapping[str, Published], *, twins: bool = True) -> Callable[[Sequence[Run]], list[Run]]:
    """For ``Experiment.rows``: what :func:`each_tier` makes of FedorAS's jobs, and others' as they are. ``published``
    by the paper's name of the data."""

    def rows(runs: Sequence[Run]) -> list[Run]:
        return [
            shown
            for run in runs
            for shown in (
                each_tier(run, published.get(run.arm.data), twins=twins)
                if run.arm.keys["method"] == "fedoras"
                else [run]
            )
        ]

    return rows
