"""What a job of FedorAS has to show beside any job's figures (sections 4.1 to 4.5; Tables 5 to 7)."""

from collections.abc import Mapping, Sequence
from math import exp, inf
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import Evaluation, RoundRecord
from fedscale_ext.methods.fedoras.fine_tuning import tier_key, twin_key
from fedscale_ext.methods.fedoras.path_sampling import path_macs, sample_paths
from fedscale_ext.methods.fedoras.stages import Plan
from fedscale_ext.models.memory import training_memory
from fedscale_ext.models.supernet.family import path_of

if TYPE_CHECKING:
    from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator

_PATHS, _DEAREST = 64, 3  # random paths, and of these the dearest, of which the one that takes most memory counts
NAMES = {"supernet": "supernet training", "search": "search", "finetune": "fine-tuning", "twin": "twins"}


def stage_figures(
    plan: Plan, history: Sequence[RoundRecord], judging: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Figures of each stage that began.

    Nobody trains in the search. Clients of a federated one count as ``judging_clients``, once for each generation that
    they judge.

    Args:
        plan: Rounds of the stages.
        history: Records of finished rounds.
        judging: :attr:`PathScorer.generations`.

    Returns:
        Rows of JSON: rounds, and sums over clients of participations, bytes and MACs.

    """
    stages: dict[str, dict[str, Any]] = {}
    for record in history:
        sums = stages.setdefault(NAMES[plan.at(record.round).name], {
            "rounds": 0, "participations": 0, "judging_clients": 0, "download_bytes": 0, "upload_bytes": 0,
            "training_macs": 0.0, "virtual_s": 0.0, "wall_s": 0.0,
        })  # fmt: skip
        sums["rounds"] += 1
        sums["participations"] += len(record.participants)
        for name, value in (("download_bytes", record.download_bytes), ("upload_bytes", record.upload_bytes),
                            ("training_macs", record.training_macs), ("virtual_s", record.round_duration_s),
                            ("wall_s", record.wall_s)):  # fmt: skip
            sums[name] += value
    if NAMES["search"] in stages:
        stages[NAMES["search"]]["judging_clients"] = sum(generation["clients"] for generation in judging)
    return [{"stage": name, **sums} for name, sums in stages.items()]


def tier_figures(job: "FedorASAggregator") -> list[dict[str, Any]]:
    """A row for each tier: its clients, its model and cost, accuracy on all test samples, and its spread over the tier.

    ``mmacs`` are the paper's count; ``search`` is None before it.
    """
    evaluation = next((record.evaluation for record in reversed(job.history) if record.evaluation), None)
    rows = []
    for tier, bracket in enumerate(job.brackets):
        model, costs = job.pool[tier_key(tier)], job.training.costs[tier]
        path = [name for (name,) in model.spec["ops"]]
        search = job.searches.results[tier] if tier < len(job.searches.results) else None
        row = {
            "tier": tier + 1,
            "clients": int((job.tier_of == tier).sum()),
            "above_mmacs": bracket.low / 1e6 if np.isfinite(bracket.low) else None,
            "budget_mmacs": bracket.high / 1e6,
            "mmacs": float(path_macs(costs, costs.indices(path)[None])[0] / 1e6),
            "macs": model.cost.forward_macs,
            "parameters": model.cost.parameters,
            "peak_mb": peak_mb(job, tier),
            **accuracies(evaluation, tier_key(tier), job.tier_of == tier),
        }
        if job.on_text() and row["loss"] is not None:
            row["perplexity"] = perplexity_of(row["loss"])
        if twin_key(tier) in job.pool:
            twin = accuracies(evaluation, twin_key(tier), job.tier_of == tier)
            row |= {f"twin_{name}": value for name, value in twin.items()}
        rows.append({**row, "path": path, "search": search})
    return rows


def perplexity_of(loss: float) -> float:
    """Return exp of a loss, infinite where that overflows."""
    try:
        return exp(loss)
    except OverflowError:
        return inf


def accuracies(evaluation: Evaluation | None, title: str, clients: np.ndarray) -> dict[str, Any]:
    """Accuracy and loss of a model, in all and over clients.

    Args:
        evaluation: The newest evaluation, if there is any.
        title: Name of the tested model.
        clients: The clients that count, bool [clients].

    Returns:
        ``accuracy`` and ``loss`` on all test samples; mean, standard deviation and worst accuracy over the tested
        clients. None for what was not tested.

    """
    figures: dict[str, Any] = dict.fromkeys(("accuracy", "loss", "client_mean", "client_std", "client_worst"))
    if evaluation is None or title not in evaluation.named:
        return figures
    figures["accuracy"], figures["loss"] = evaluation.named[title]
    by_client = spread(np.where(clients, evaluation.named_correct[title], np.nan), evaluation.count)
    return figures | {f"client_{name}": value for name, value in by_client.items()}


def spread(correct: np.ndarray, count: np.ndarray) -> dict[str, float]:
    """Mean, standard deviation and worst of the accuracies of clients that have ``count`` test samples and were tested
    (``correct`` is no NaN); nothing without any."""
    tested = (count > 0) & np.isfinite(correct)
    if not tested.any():
        return {}
    accuracy = correct[tested] / count[tested]
    return {"mean": float(accuracy.mean()), "std": float(accuracy.std()), "worst": float(accuracy.min())}


def fairness_figures(job: "FedorASAggregator") -> list[dict[str, Any]]:
    """How accuracy spreads over all clients, each tested on its tier's model (Table 7).

    A row is for the supernet's weights; another for random ones, where all tiers have twins. On text it is accuracy,
    too, where the paper has perplexity.
    """
    evaluation = next((record.evaluation for record in reversed(job.history) if record.evaluation), None)
    rows = []
    for title, key in (("supernet", tier_key), ("random", twin_key)):
        keys = [key(tier) for tier in range(len(job.brackets))]
        if evaluation is None or not all(name in evaluation.named_correct for name in keys):
            continue
        correct = np.array([evaluation.named_correct[name] for name in keys])[job.tier_of, np.arange(len(job.tier_of))]
        rows.append({"weights": title, **spread(correct, evaluation.count)})
    return rows


def peak_mb(job: "FedorASAggregator", tier: int) -> float:
    """Peak memory in MB of a step of stage 1 on a device of a tier.

    It is the subspace's state and momentum, and the largest need for a batch among the paths of most MACs of some
    random ones within the budget. Other paths can need more: memory does not follow MACs.
    """
    training = job.training
    costs = training.costs[tier]
    budgets = np.full(_PATHS, training.tiers[tier].budget)
    drawn = sample_paths(costs, costs.held, budgets, stream(job.seed, tier, "memory"))
    dearest = drawn[path_macs(costs, drawn).argsort(kind="stable")[-_DEAREST:]]
    paths = [costs.path(columns) for columns in dearest]
    needs = [training_memory(path_of(training.spec, path), job.args.batch_size) for path in paths]
    resident = training.bytes * (2 if job.config.job.client_momentum else 1)
    return (resident + max(need.gradients + need.activations for need in needs)) / 1e6
