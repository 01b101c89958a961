"""summary.json: what a job was, what it reached and what it cost."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.failures import count
from fedscale_ext.core.missing_values import mean_of_known
from fedscale_ext.core.types import Evaluation, Model, RoundRecord, members
from fedscale_ext.data.registry import known
from fedscale_ext.metrics.accuracy import accuracy, client_accuracy, without_mask
from fedscale_ext.metrics.by_class import class_summary
from fedscale_ext.metrics.convergence import converged_round, mean_accuracies
from fedscale_ext.metrics.cost import MB, Storage, round_completion, spent, storage
from fedscale_ext.metrics.job_folder.header import Floors, JobHeader
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.metrics.job_folder.round_records import trained_clients
from fedscale_ext.metrics.perplexity import perplexity
from fedscale_ext.metrics.scheduled_tests import scheduled
from fedscale_ext.util.atomic_files import write_atomic

SUMMARY = "summary.json"


def floors(majority: np.ndarray, most_frequent: np.ndarray, count: np.ndarray) -> Floors:
    """Accuracy of clients that predict one label, without a model.

    ``majority`` predicts the label of most training samples of the client, ``most_frequent`` that of most training
    samples of all clients. Both arguments count correct test samples of the ``count`` of each client, int64 [clients].
    """
    return {"majority": _floor(majority, count), "most_frequent": _floor(most_frequent, count)}


def _floor(correct: np.ndarray, count: np.ndarray) -> Any:
    figures = accuracy(Evaluation(0, (), correct, correct, np.zeros(len(count)), count, {}))
    return plain({name: getattr(figures, name) for name in ("mean", "iqr", "sample_weighted", "tested")})


@dataclass(frozen=True)
class JobResult:
    """What a job gave, for its summary; of a job that has not ended, only the records.

    Attributes:
        records: The records of all rounds. The last evaluation in them is the job's result.
        stopped: Why the job ended before its last round, or None.
        lineage: Where models come from, by key.
        results: The method's further figures.
        server_bytes: Memory of the server's state beside the models.
        repeated_bytes: Bytes of models of the pool that others of it repeat.
        personal_bytes: Bytes of each client's personal model, or None where they are the pool's.
        served_bytes: Bytes of the model that each client is served, or None where they are its personal model's.
        privacy: The account of differential privacy, or None.
        refused_messages: Messages that were refused since the aggregator last started, by reason.
        notices: All notices, in their order; None: the header's.
        resumed: After which rounds the job was resumed, and whether its code had changed.

    """

    records: Sequence[RoundRecord]
    stopped: str | None = None
    lineage: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    server_bytes: int = 0
    repeated_bytes: int = 0
    personal_bytes: Sequence[float] | None = None
    served_bytes: Sequence[float] | None = None
    privacy: Mapping[str, Any] | None = None
    refused_messages: Mapping[str, int] = field(default_factory=dict)
    notices: Sequence[str] | None = None
    resumed: Sequence[Mapping[str, Any]] = ()


def summarise(
    header: JobHeader,
    models: Sequence[Model] | None,
    result: JobResult,
    *,
    restarts: Mapping[str, int] | None = None,
    client_names: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The summary of a job as JSON values. Accuracies are in [0, 1]; figures that do not exist are None.

    ``models`` is None for a job that has not ended. ``restarts`` counts the driver's restarts of each process.
    ``client_names`` are None where they are not known. ``converged_round`` of the summary is the first round where
    ``stop_gain`` held. Its wall time is the sum over rounds, which leaves out the start and is right for a resumed job.
    """
    records = result.records
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    losses = [record.train_loss for record in records if not np.isnan(record.train_loss)]
    completion_mean, completion_std = round_completion(records)
    last = records[-1] if records else None
    summary = {
        **header,
        "rounds": last.round if last else 0,
        "stopped": result.stopped,
        "notices": list(header.get("notices", ()) if result.notices is None else result.notices),
        "converged_round": _converged_round(header["config"], records),
        "privacy": result.privacy,
        "accuracy": _accuracy(evaluation),
        "by_class": class_summary(evaluation, header["config"]),
        "personalised": _at_the_end(records[-1].personalised if records else None),
        "before_training": _at_the_end(records[-1].before_training if records else None),
        "after_training": _at_the_end(records[-1].after_training if records else None),
        "on_all": _at_the_end(records[-1].on_all if records else None),
        "loss": {
            "train": losses[-1] if losses else None,
            "test": accuracy(evaluation).loss if evaluation else None,
        },
        **_perplexity(header, evaluation),
        "cost": {
            **_cost(models, evaluation, result),
            "server_bytes": result.server_bytes,
        },
        "time": {
            "virtual_s": last.virtual_clock_s if last else 0.0,
            "wall_s": sum(record.wall_s for record in records),
            "round_completion_mean_s": completion_mean,
            "round_completion_std_s": completion_std,
        },
        "clients": {
            **_clients(records, evaluation, header["num_clients"]),
            **({} if client_names is None else {"names": list(client_names)}),  # index: client - 1
        },
        "models": _models(models or (), result.lineage, evaluation),
        "results": dict(result.results),
        "refused_messages": result.refused_messages,
        "faults": dict(sum((Counter(record.faults) for record in records), Counter())),
        "resumed": list(result.resumed),
        "restarts": dict(restarts or {}),
        "cohort_sizes": {key: size for record in records for key, size in record.cohort_sizes.items()},
    }
    return plain(summary)


def write_summary(directory: Path, summary: Mapping[str, Any]) -> Path:
    """Write ``directory/summary.json`` atomically."""
    path = directory / SUMMARY
    write_atomic(path, json.dumps(plain(summary), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _converged_round(config: Mapping[str, Any], records: Sequence[RoundRecord]) -> int | None:
    """By the rule of ``stop_gain``; None where it is not asked for, or did not come true."""
    if config.get("stop_gain") is None:
        return None
    seen = mean_accuracies(scheduled(records, config["eval_interval"], config.get("eval_macs")))
    return converged_round(seen, config["stop_gain"], config["stop_patience"], config["stop_unit"])


def _accuracy(evaluation: Evaluation | None) -> dict[str, Any] | None:
    if evaluation is None:
        return None
    return {
        "round": evaluation.round,
        **dataclasses.asdict(accuracy(evaluation)),
        "named": _named(evaluation),
        "per_client": client_accuracy(evaluation),  # index: client - 1
        "served": list(evaluation.serve),
        **_without_mask(evaluation),
    }


def _without_mask(evaluation: Evaluation) -> dict[str, Any]:
    """Of models that were tested with masked logits, the same without."""
    plain_test = without_mask(evaluation)
    if plain_test is None:
        return {}
    figures = accuracy(plain_test)
    known = {name: getattr(figures, name) for name in ("mean", "std", "iqr", "worst", "sample_weighted")}
    return {"unmasked": {**known, "per_client": client_accuracy(plain_test)}}


def _perplexity(header: JobHeader, evaluation: Evaluation | None) -> dict[str, Any]:
    """Of text only."""
    entry = known(header["config"].get("data_set", ""))
    if entry is None or not entry.text:
        return {}
    return {"perplexity": dataclasses.asdict(perplexity(evaluation)) if evaluation else None}


def _named(evaluation: Evaluation) -> dict[str, Any]:
    """Global models: over all samples, and each client's own."""
    by_client = {
        title: client_accuracy(Evaluation(0, (), correct, correct, correct, evaluation.count, {}))
        for title, correct in evaluation.named_correct.items()
    }
    return {
        title: {"accuracy": top1, "loss": loss}
        | ({"mean": mean_of_known(by_client[title]), "per_client": by_client[title]} if title in by_client else {})
        for title, (top1, loss) in evaluation.named.items()
    }


def _at_the_end(evaluation: Evaluation | None) -> dict[str, Any] | None:
    """The accuracy after fine-tuning, around local training, or on all test samples; None where nobody asked for it."""
    if evaluation is None:
        return None
    figures = dataclasses.asdict(accuracy(evaluation))
    return {
        "round": evaluation.round, **figures, "per_client": client_accuracy(evaluation), **_without_mask(evaluation)
    }  # fmt: skip


def _cost(models: Sequence[Model] | None, evaluation: Evaluation | None, result: JobResult) -> dict[str, Any]:
    total = spent(result.records)
    unknown = Storage(math.nan, math.nan)
    serve = evaluation.serve if evaluation else ()
    stored = unknown
    if models is not None:
        trained = trained_clients(result.records)
        stored = storage(models, serve, trained, result.personal_bytes, result.served_bytes)
    return {
        "forward_macs": total.forward_macs,
        "training_macs": total.training_macs,
        "server_macs": _server_macs(result.records),
        "download_bytes": total.download_bytes,
        "upload_bytes": total.upload_bytes,
        "network_total_mb": total.network_mb,
        "network_per_round_mb": total.network_per_round_mb,
        "storage_suite_mb": stored.suite_mb - result.repeated_bytes / MB,
        "mean_model_mb": stored.mean_model_mb,
        "client_models": stored.client_models,
    }


def _server_macs(records: Sequence[RoundRecord]) -> int | None:
    """MACs of the server's own steps; None unless the job counted them."""
    counted = [record.server_macs for record in records if record.server_macs is not None]
    return sum(counted) if counted else None


def _clients(records: Sequence[RoundRecord], evaluation: Evaluation | None, num_clients: int) -> dict[str, Any]:
    """Counts; a client that failed in three rounds counts three times."""
    failed: Counter[str] = Counter()
    for record in records:
        for reason, clients in record.failed.items():
            count(failed, reason, clients)
    return {
        "total": num_clients,
        "took_part": len({client for record in records for client in record.participants}),
        "participations": sum(len(record.participants) for record in records),
        "failed": dict(failed),
        "failed_total": failed.total(),
        "stragglers": sum(record.stragglers for record in records),
        "late_download_mb": sum(record.late_download_bytes for record in records) / MB,
        "lost_download_mb": sum(record.lost_download_bytes for record in records) / MB,
        "offline": sum(record.offline for record in records),
        "untested": accuracy(evaluation).untested if evaluation else num_clients,
    }


def _models(models: Sequence[Model], lineage: Mapping[str, Any], evaluation: Evaluation | None) -> list[dict[str, Any]]:
    serves = Counter(member for key in (evaluation.serve if evaluation else ()) for member in members(key))
    return [
        {
            "key": model.key,
            "spec": model.spec.to_json(),
            "cost": dataclasses.asdict(model.cost),
            "version": model.version,
            "serves": serves[model.key],
            "lineage": lineage.get(model.key),
        }
        for model in models
    ]
