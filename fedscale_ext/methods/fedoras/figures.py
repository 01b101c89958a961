"""What a job of FedorAS has to show beside any job's figures (sections 4.1 to 4.5; Tables 5 to 7)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedscale_ext.methods.fedoras.fine_tuning import tier_key, twin_key
from fedscale_ext.methods.fedoras.path_sampling import path_macs
from fedscale_ext.methods.fedoras.stages import Plan
from fedscale_ext.runtime.work import Evaluation, RoundRecord

if TYPE_CHECKING:
    from fedscale_ext.methods.fedoras.aggregator import FedorASAggregator

NAMES = {"supernet": "supernet training", "search": "search", "finetune": "fine-tuning", "twin": "twins"}


def stage_figures(plan: Plan, history: Sequence[RoundRecord]) -> list[dict[str, Any]]:
    """Of each stage that began: its rounds, and sums over its clients of participations, bytes and MACs."""
    found: dict[str, dict[str, Any]] = {}
    for record in history:
        own = found.setdefault(NAMES[plan.at(record.round).name], {
            "rounds": 0, "participations": 0, "download_bytes": 0, "upload_bytes": 0, "training_macs": 0.0,
            "virtual_s": 0.0, "wall_s": 0.0,
        })  # fmt: skip
        own["rounds"] += 1
        own["participations"] += len(record.participants)
        for name, value in (("download_bytes", record.download_bytes), ("upload_bytes", record.upload_bytes),
                            ("training_macs", record.training_macs), ("virtual_s", record.round_duration_s),
                            ("wall_s", record.wall_s)):  # fmt: skip
            own[name] += value
    return [{"stage": name, **own} for name, own in found.items()]


def tier_figures(job: "FedorASAggregator") -> list[dict[str, Any]]:
    """Of each tier: who is in it, its model and what that costs, its accuracy on all test samples, and how accuracy
    spreads over the tier's own clients. ``mmacs`` are the paper's count; ``search`` is None before it."""
    evaluation = next((record.evaluation for record in reversed(job.history) if record.evaluation), None)
    rows = []
    for tier, bracket in enumerate(job.brackets):
        model, costs = job.pool[tier_key(tier)], job.training.costs[tier]
        path = [name for (name,) in model.spec["ops"]]
        found = job.searches.found[tier] if tier < len(job.searches.found) else None
        own = {
            "tier": tier + 1,
            "clients": int((job.tier_of == tier).sum()),
            "above_mmacs": bracket.low / 1e6 if np.isfinite(bracket.low) else None,
            "budget_mmacs": bracket.high / 1e6,
            "mmacs": float(path_macs(costs, costs.indices(path)[None])[0] / 1e6),
            "macs": model.cost.forward_macs,
            "parameters": model.cost.parameters,
            **accuracies(evaluation, tier_key(tier), job.tier_of == tier),
        }
        if twin_key(tier) in job.pool:
            twin = accuracies(evaluation, twin_key(tier), job.tier_of == tier)
            own |= {f"twin_{name}": value for name, value in twin.items()}
        rows.append({**own, "path": path, "search": found})
    return rows


def accuracies(evaluation: Evaluation | None, title: str, clients: np.ndarray) -> dict[str, Any]:
    """``accuracy`` and ``loss`` of a named model over all test samples; over ``clients`` (bool) that were tested, mean
    and standard deviation of theirs, and the worst. None for what nobody was tested on."""
    found: dict[str, Any] = dict.fromkeys(("accuracy", "loss", "client_mean", "client_std", "client_worst"))
    if evaluation is None or title not in evaluation.named:
        return found
    found["accuracy"], found["loss"] = evaluation.named[title]
    correct, count = evaluation.named_correct[title], evaluation.count
    tested = clients & (count > 0) & np.isfinite(correct)
    if tested.any():
        own = correct[tested] / count[tested]
        found |= {"client_mean": float(own.mean()), "client_std": float(own.std()), "client_worst": float(own.min())}
    return found
