"""Round records as lines of metrics.jsonl, there and back."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.errors import UserError
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.jsonable import plain
from fedscale_ext.runtime.work import Evaluation, RoundRecord

_ARRAYS = {"correct": np.float64, "top5": np.float64, "loss": np.float64, "count": np.int64}


def record_to_json(record: RoundRecord) -> dict[str, Any]:
    """The record's fields, and below ``evaluation`` also its figures as ``accuracy`` (for readers of the file)."""
    data = plain(record)
    if record.evaluation is not None:
        data["evaluation"]["accuracy"] = plain(accuracy(record.evaluation))
    return data


def record_from_json(data: Mapping[str, Any]) -> RoundRecord:
    """The record of a line; floats are exact, counts of correct answers come back as float64."""
    fields = {field.name: data[field.name] for field in dataclasses.fields(RoundRecord)}
    fields["train_loss"] = _float(fields["train_loss"])
    if fields["evaluation"] is not None:
        fields["evaluation"] = _evaluation(fields["evaluation"])
    return RoundRecord(**fields)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; none where it is absent.

    A last line without its newline is what a killed process left and is passed over; any other line
    that is no JSON object with a ``round`` is a UserError.
    """
    if not path.exists():
        return []
    *whole, _torn = path.read_bytes().split(b"\n")
    lines = []
    for number, text in enumerate(whole, 1):
        try:
            data = json.loads(text)
            int(data["round"])
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"line {number} of {path} is damaged; move the file away, or start the job anew without --resume"
            ) from None
        lines.append(data)
    return lines


def read_records(path: Path) -> list[RoundRecord]:
    """All round records of a metrics.jsonl, in its order; UserError where a line is damaged."""
    try:
        return [record_from_json(data) for data in read_lines(path)]
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a metrics.jsonl of this version: {error!r}") from None


def _evaluation(data: Mapping[str, Any]) -> Evaluation:
    arrays = {name: np.array([_float(value) for value in data[name]]).astype(dtype) for name, dtype in _ARRAYS.items()}
    named = {title: (_float(top1), _float(loss)) for title, (top1, loss) in data["named"].items()}
    return Evaluation(round=data["round"], serve=tuple(data["serve"]), named=named, **arrays)


def _float(value: Any) -> float:
    return float("nan") if value is None else float(value)
