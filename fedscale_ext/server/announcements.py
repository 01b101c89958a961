"""What a job tells while it runs: the driver's events, and notices about its course."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import listed
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.core.types import RoundRecord, is_personal
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.job_folder.round_records import trained_clients
from fedscale_ext.population.population import Population
from fedscale_ext.report.job.tables import seconds
from fedscale_ext.server.method_base.method_traits import MethodTraits, untrained_weights
from fedscale_ext.transport.unit_retries import fault_summary

_NAMED = 20  # clients that a notice names; the log has all


def ready_event(
    config: JobConfig, data: Mapping[str, Any], population: Population, executors: int, rounds: int, log_dir: Path
) -> dict[str, Any]:
    """Return the event that describes a prepared job.

    Args:
        config: The job's configuration.
        data: Name of the data set, and whether it is ``generated``.
        population: The clients' devices.
        executors: Number of executors.
        rounds: The last round that the job can come to.
        log_dir: The job's folder.

    """
    return {
        "event": "ready",
        "clients": population.size,
        "executors": executors,
        "data": f"{'generated' if data['generated'] else 'real'}: {data['name']}",
        "population": population.source,
        "model": config.fedscale.model,
        "rounds": rounds,
        "log_dir": str(log_dir),
    }


def round_event(record: RoundRecord, rounds: int, asked: int, phase: str) -> dict[str, Any]:
    """Return the event of a finished round.

    ``rounds`` is the last one that the job is expected to come to, ``asked`` the number of its configuration;
    ``phase`` is what the method does in the round.
    """
    return {
        "event": "round",
        "round": record.round,
        "rounds": rounds,
        "asked": asked,
        "phase": phase,
        "participants": len(record.participants),
        "models": record.models,
        "assignments": record.assignments,
        "loss": record.train_loss if record.participants else None,
        "accuracy": accuracy(record.evaluation).mean if record.evaluation else None,
        "epsilon": record.privacy["epsilon"] if record.privacy else None,
        "virtual_clock_s": record.virtual_clock_s,
        "wall_s": record.wall_s,
    }


def untrained_notice(method: type[MethodTraits], history: Sequence[RoundRecord]) -> str | None:
    """Return a notice about clients with personal models that are tested without having trained; None for none."""
    evaluation = history[-1].evaluation if history else None
    if evaluation is None or not any(map(is_personal, evaluation.serve)):
        return None
    trained = trained_clients(history)
    tested = np.flatnonzero(evaluation.count > 0) + 1
    untrained = len(set(tested.tolist()) - trained)
    if not untrained:
        return None
    return f"{untrained:,} of {len(tested):,} tested clients never trained: {untrained_weights(method)}"


def offline_notice(population: Population, eligible: np.ndarray, history: Sequence[RoundRecord]) -> str | None:
    """Return a notice about clients that were offline whenever a round began, so that no round could select them.

    Args:
        population: the clients' devices.
        eligible: clients that may train, bool [clients].
        history: the job's rounds.

    Returns:
        A sentence; None for none, and where the clients have no times online.

    """
    availability = population.availability
    if availability is None or not history:
        return None
    missed, reachable = eligible.copy(), population.ever_online()  # the job's first notices tell of the others
    for record in history:
        missed &= ~availability.online(record.virtual_clock_s - record.round_duration_s)
        if not (missed & reachable).any():
            return None
    count = int(missed.sum())
    were = "was" if count == 1 else "were"
    return (
        f"{count:,} of {len(eligible):,} clients {were} offline at the beginning of every round and could not train: "
        f"the rounds cover {seconds(history[-1].virtual_clock_s)} of virtual time"
    )


def faults_notice(
    history: Sequence[RoundRecord], since: Mapping[str, int], refused_messages: Mapping[str, int]
) -> str | None:
    """Return a notice about refused messages, unawaited answers and lost executors; None for none.

    ``since`` are the faults since the last record.
    """
    total = sum((Counter(record.faults) for record in history), Counter(since))
    if refused := sum(refused_messages.values()):
        total["messages refused"] += refused
    if not total:
        return None
    return f"faults that the job got over: {fault_summary(total)}; the aggregator's log says more"


@dataclass(frozen=True)
class ModelChoice:
    """A model or level that clients may have; ``detail`` says more of it, such as its rate of channels."""

    name: str
    cost: Cost
    detail: str = ""

    def described(self) -> str:
        """Name, parameters and MACs per sample."""
        size = f"{self.cost.parameters:,} parameters, {self.cost.forward_macs:,} MACs per sample"
        return f"{self.name} ({f'{self.detail}, ' if self.detail else ''}{size})"


def assignment_sentence(choices: Sequence[ModelChoice], indices: np.ndarray) -> str:
    """``20 of 60 clients level b (...), 40 level a (...)``, without choices that no client has.

    ``indices`` int64 [clients]: the place of each client's model among ``choices``.
    """
    counts = np.bincount(indices, minlength=len(choices)).tolist()
    chosen = [(count, choice) for count, choice in zip(counts, choices, strict=True) if count]
    (first, choice), *others = chosen
    parts = [f"{first} of {len(indices)} clients {choice.described()}"]
    return ", ".join(parts + [f"{count} {other.described()}" for count, other in others])


def weak_notice(names: Sequence[str], num_clients: int, macs: float, instead: str) -> str:
    """Return the sentence on clients that afford less than the smallest model.

    Args:
        names: Their names.
        num_clients: Number of all clients.
        macs: MACs per sample of the smallest model.
        instead: What such clients do.

    """
    verb = "affords" if len(names) == 1 else "afford"
    return (
        f"{len(names)} of {num_clients} clients {verb} less than the {macs:,.0f} MACs per sample of the "
        f"smallest model; {instead}: {listed(names, _NAMED)}"
    )
