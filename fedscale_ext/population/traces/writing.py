"""Writes traces as npz or csv, which can be read without running code."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace
from fedscale_ext.population.traces.tables import RESAMPLED
from fedscale_ext.util.atomic_files import refusing, replacing

Trace = CapacityTrace | AvailabilityTrace


def write_trace(path: Path, trace: Trace, *, force: bool = False) -> None:
    """Write a trace completely, or not at all; reading it gives the same bits.

    Args:
        path: The file, which ends in ``.npz`` or ``.csv``.
        trace: The trace.
        force: Whether to overwrite a file.

    Raises:
        UserError: If the name ends otherwise, the file exists, or it cannot be written.

    """
    if path.suffix not in (".npz", ".csv"):
        raise UserError(f"{path} must end in .npz or .csv, the formats that a trace can be written in")
    if path.exists() and not force:
        raise UserError(f"{path} exists: name another file or add --force")
    with refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary:
            (_npz if path.suffix == ".npz" else _csv)(temporary, trace)


def _npz(path: Path, trace: Trace) -> None:
    columns: dict[str, Any] = {"client_id": trace.client_id}
    if isinstance(trace, CapacityTrace):
        columns |= {"computation_ms_per_sample": trace.computation_ms, "communication_kbps": trace.communication_kbps}
    else:
        columns |= {"offsets": trace.offsets, "active": trace.active, "inactive": trace.inactive}
        columns["finish_time"] = trace.finish_time
    if trace.resampled:
        columns[RESAMPLED] = np.ones(1, np.uint8)
    with path.open("wb") as file:  # NumPy gives a path without the suffix another name
        np.savez_compressed(file, **columns)


def _csv(path: Path, trace: Trace) -> None:
    capacity = isinstance(trace, CapacityTrace)
    names = ["client_id", *(("computation", "communication") if capacity else ("active", "inactive", "finish_time"))]
    mark = ["1"] if trace.resampled else []
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*names, RESAMPLED] if mark else names)
        for row in _devices(trace) if isinstance(trace, CapacityTrace) else _intervals(trace):
            writer.writerow([*map(_cell, row), *mark])


def _devices(trace: CapacityTrace) -> Iterator[Sequence[float | str]]:
    columns = (trace.client_id, trace.computation_ms, trace.communication_kbps)
    yield from zip(*(column.tolist() for column in columns), strict=True)


def _intervals(trace: AvailabilityTrace) -> Iterator[Sequence[float | str]]:
    """Yield one line per interval; a client without intervals gets one from 1 to 0, which is read as none."""
    active, inactive, offsets = trace.active.tolist(), trace.inactive.tolist(), trace.offsets.tolist()
    for row, (client, finish) in enumerate(zip(trace.client_id.tolist(), trace.finish_time.tolist(), strict=True)):
        for k in range(offsets[row], offsets[row + 1]):
            yield client, active[k], inactive[k], finish
        if offsets[row] == offsets[row + 1]:
            yield client, 1, 0, finish


def _cell(value: float | str) -> str:
    """Write text unchanged, and a number so that reading gives the same bits; whole numbers have no point."""
    if isinstance(value, str):
        return value
    return str(int(value)) if abs(value) < 2**53 and value == int(value) else repr(value)
