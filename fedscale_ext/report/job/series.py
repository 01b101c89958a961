"""A job's figures as rows of plain values: by round, by client, by model."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.data.layout.class_names import class_names
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.auc import class_auc, client_auc
from fedscale_ext.metrics.by_class import balanced_accuracy, by_class, class_summary, macro_f1
from fedscale_ext.report.job.lineage import origin
from fedscale_ext.report.job.loading import LoadedJob


def round_row(record: RoundRecord) -> dict[str, Any]:
    """A round; figures of a test are None for a round without one."""
    reached = accuracy(record.evaluation) if record.evaluation else None
    tested = ("mean", "sample_weighted", "iqr", "worst", "loss")
    names = ("accuracy", "accuracy_over_samples", "accuracy_iqr", "accuracy_worst", "test_loss")
    return {
        "round": record.round,
        **{name: getattr(reached, of, None) for name, of in zip(names, tested, strict=True)},
        "train_loss": record.train_loss,
        "participants": len(record.participants),
        "models": record.models,
        "virtual_s": record.virtual_clock_s,
        "wall_s": record.wall_s,
        "training_macs": record.training_macs,
        "download_bytes": record.download_bytes,
        "upload_bytes": record.upload_bytes,
    }


def client_rows(job: LoadedJob) -> list[dict[str, Any]]:
    """Clients, from 1 on, with as much as the job has of them; ``name`` is None where it was not recorded."""
    numbers = range(1, job.header["num_clients"] + 1)
    names = job.clients.names if job.clients is not None else None
    columns: dict[str, Any] = {"client": list(numbers), "name": names or [None] * len(numbers)}
    if job.evaluation is not None:
        columns["accuracy"] = job.client_accuracy.tolist()
        if (confusion := job.evaluation.confusion) is not None:
            columns |= {"balanced_accuracy": balanced_accuracy(confusion).tolist(),
                        "macro_f1": macro_f1(confusion).tolist()}  # fmt: skip
            if (auc := job.evaluation.auc) is not None:
                columns["auc"] = client_auc(confusion, auc).tolist()
        columns["model"] = list(job.evaluation.serve)
        columns["test_samples"] = np.asarray(job.evaluation.count).tolist()
    if job.clients is not None:
        columns |= {name: getattr(job.clients, name).tolist()
                    for name in ("train_samples", "capacity", "computation_ms", "communication_kbps")}  # fmt: skip
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def class_rows(job: LoadedJob, client: int | None = None) -> list[dict[str, Any]]:
    """Classes by their labels, over the test samples of all clients, or of one ``client`` (from 1 on).

    UserError, which says why, where the job has no figures of classes.
    """
    confusion = job.evaluation.confusion if job.evaluation is not None else None
    if job.evaluation is None or confusion is None:
        why = class_summary(job.evaluation, job.header["config"]).get("absent")
        raise UserError(f"{job.name} has no figures of classes: {why}")
    figures = vars(by_class(confusion if client is None else confusion.of([client - 1])))
    names = class_names(job.header["config"], confusion.classes)
    columns = {"label": list(range(len(names))), "name": names}
    columns |= {name: values.tolist() for name, values in figures.items()}
    if (auc := job.evaluation.auc) is not None:
        columns["auc"] = class_auc(confusion, auc, client).tolist()
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def model_row(model: Mapping[str, Any]) -> dict[str, Any]:
    """A model of a summary."""
    lineage, cost = origin(model), model["cost"]
    return {
        "model": model["key"],
        "parent": lineage.get("parent"),
        "birth": lineage.get("birth"),
        "steps": ", ".join(lineage.get("steps", ())),
        "family": model["spec"]["family"],
        "macs": cost["forward_macs"],
        "parameters": cost["parameters"],
        "bytes": cost["bytes"],
        "clients": model["serves"],
    }
