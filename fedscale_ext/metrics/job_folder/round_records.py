"""Round records as lines of metrics.jsonl, there and back."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.job_folder.evaluations import evaluation_from_json, read_number
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.util.reading import load_json, open_plain

LAST = ("personalised", "before_training", "after_training", "on_all")  # evaluations that only the last round may have


#: Fields that a line has only if there is something to say, and what they are otherwise.
RARE: dict[str, Any] = {
    "faults": {},
    "late_download_bytes": 0,
    "lost_download_bytes": 0,
    "digests": {},
    "untrained": [],
}


def record_to_json(
    record: RoundRecord, evaluation: Mapping[str, Any] | None, last: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The record's fields; ``evaluation``, and each of ``last`` by its name in :data:`LAST`, is what
    :func:`fedscale_ext.metrics.job_folder.evaluations.write_evaluation` says of it."""
    left_out = {"evaluation", *LAST, *(name for name in RARE if not getattr(record, name))}
    names = [field.name for field in dataclasses.fields(RoundRecord) if field.name not in left_out]
    return {name: plain(getattr(record, name)) for name in names} | {"evaluation": evaluation} | dict(last or {})


def record_from_json(data: Mapping[str, Any], log_dir: Path) -> RoundRecord:
    """The record of a line of ``log_dir/metrics.jsonl``; floats are exact."""
    rare = (*RARE, *LAST)
    fields = {field.name: data[field.name] for field in dataclasses.fields(RoundRecord) if field.name not in rare}
    fields |= {name: data.get(name, absent) for name, absent in RARE.items()}
    fields |= {name: evaluation_from_json(log_dir, data[name]) for name in LAST if name in data}
    fields["train_loss"] = read_number(fields["train_loss"])
    if fields["evaluation"] is not None:
        fields["evaluation"] = evaluation_from_json(log_dir, fields["evaluation"])
    return RoundRecord(**fields)


def trained_clients(records: Iterable[RoundRecord]) -> set[int]:
    """Numbers of the clients that trained in any of the rounds: participants may only send something instead."""
    return {client for record in records for client in set(record.participants).difference(record.untrained)}


def read_lines(path: Path, size: int = -1) -> list[dict[str, Any]]:
    """Read the JSON objects of a file, one a line; none where it is absent.

    A last line without its newline was left by a killed process and is passed over. Any other line that is no JSON
    object with a ``round`` is a UserError. With ``size``, only the first bytes are read: later lines may be damaged.
    """
    try:
        with open_plain(path) as file:
            *whole, _torn = file.read(size).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    lines = []
    for number, text in enumerate(whole, 1):
        try:
            data = load_json(text)
            int(data["round"])
        except (ValueError, KeyError, TypeError, OverflowError):
            raise UserError(
                f"line {number} of {path} is damaged; move the file away, or start the job anew without --resume"
            ) from None
        lines.append(data)
    return lines


def read_records(path: Path, size: int = -1) -> list[RoundRecord]:
    """Read the round records of a metrics.jsonl, in its order, all or those in its first ``size`` bytes.

    UserError where a line is damaged.
    """
    try:
        return [record_from_json(data, path.parent) for data in read_lines(path, size)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is not a metrics.jsonl of this version: {error!r}") from None
