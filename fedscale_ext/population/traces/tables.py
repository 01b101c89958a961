"""Reads traces that are tables: csv and npz."""

import csv
import io
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces.client_ids import IdColumn, ids_of_array, ids_of_texts, whole
from fedscale_ext.population.traces.columns import (
    AvailabilityTrace,
    CapacityTrace,
    Where,
    check_availability,
    check_capacity,
    repeated,
)
from fedscale_ext.util.npz import Npz
from fedscale_ext.util.reading import MEGA, read_plain, repeated_column

MAX_BYTES = 512 * MEGA  # of a trace, or of an array in it: several times FedScale's own
_CAPACITY_CSV = ("client_id", "computation", "communication")
_CAPACITY_NPZ = ("client_id", "computation_ms_per_sample", "communication_kbps")
_AVAILABILITY_CSV = ("client_id", "active", "inactive", "finish_time")
RESAMPLED = "resampled"  # column or array that may be there: not 0 where figures were drawn, not observed
_AVAILABILITY_NPZ = ("client_id", "offsets", "active", "inactive", "finish_time")


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Read a trace file; raise UserError if it is missing, unreadable, empty or above ``max_bytes`` bytes."""
    try:
        data = read_plain(path, max_bytes)
    except OSError as error:
        raise UserError(
            f"{path}: cannot read this trace ({error.strerror}); name a FedScale trace as pickle, .csv "
            "or .npz, or write `resampled` for one drawn from the published marginals"
        ) from None
    if not data:
        raise UserError(f"{path} is empty; a trace lists at least one client")
    return data


def capacity_csv(path: Path) -> CapacityTrace:
    """Read one device per line: ``client_id,computation,communication`` (ms per sample, kbit/s)."""
    column, (computation, communication), lines, resampled = _csv_columns(path, _CAPACITY_CSV)
    texts, id_index, where = column.texts, column.index, _line(lines)
    again = np.flatnonzero(id_index != np.arange(len(id_index)))
    if len(again):
        row = int(again[0])
        raise UserError(repeated(str(path), where(row), texts[id_index[row]]))
    trace = CapacityTrace(ids_of_texts(texts, path, where), computation, communication, resampled)
    return check_capacity(trace, str(path), where)


def capacity_npz(path: Path) -> CapacityTrace:
    """Read arrays ``client_id``, ``computation_ms_per_sample`` and ``communication_kbps`` of one length."""
    ids, (computation, communication), resampled = _npz_columns(path, _CAPACITY_NPZ)
    _same_length(path, _CAPACITY_NPZ, (ids, computation, communication))
    trace = CapacityTrace(ids, computation, communication, resampled)
    return check_capacity(trace, str(path), _row)


def availability_csv(path: Path) -> AvailabilityTrace:
    """Read one interval per line, in any order: ``client_id,active,inactive,finish_time`` (seconds)."""
    column, (active, inactive, finish), lines, resampled = _csv_columns(path, _AVAILABILITY_CSV)
    id_index = column.index
    if not len(id_index):
        raise UserError(f"{path} holds no client; an availability trace needs at least one")
    line_of_text = np.unique(id_index, return_index=True)[1]
    ids = ids_of_texts(column.texts, path, lambda index: _line(lines)(line_of_text[index]))
    clients, first_index, client_of = np.unique(ids, return_index=True, return_inverse=True)
    rank = np.empty(len(clients), np.int64)
    rank[np.argsort(first_index)] = np.arange(len(clients))  # keep the order of first appearance
    row_of = rank[client_of][id_index]
    first = np.unique(row_of, return_index=True)[1]
    ids = ids[np.sort(first_index)]
    differs = ~((finish == finish[first][row_of]) | np.isnan(finish))
    if differs.any():
        line = int(np.argmax(differs))
        raise UserError(
            f"{path}: line {lines[line]} gives client {ids[row_of[line]]} finish_time {finish[line]:g}, "
            f"line {lines[first[row_of[line]]]} gives {finish[first][row_of][line]:g}"
        )
    lines_of = np.bincount(row_of, minlength=len(clients))
    never = (active == 1) & (inactive == 0) & (lines_of[row_of] == 1)  # as write_traces has a client without intervals
    order = np.argsort(row_of, kind="stable")
    order = order[~never[order]]
    offsets = np.concatenate(([0], np.cumsum(np.bincount(row_of[order], minlength=len(clients)))))
    trace = AvailabilityTrace(ids, offsets, active[order], inactive[order], finish[first], resampled)
    return check_availability(trace, str(path), lambda row: f"client {ids[row]}")


def availability_npz(path: Path) -> AvailabilityTrace:
    """Read the arrays of :class:`AvailabilityTrace` under their own names."""
    ids, (offsets, active, inactive, finish), resampled = _npz_columns(path, _AVAILABILITY_NPZ)
    _same_length(path, ("client_id", "finish_time"), (ids, finish))
    _same_length(path, ("active", "inactive"), (active, inactive))
    offsets = whole(offsets, "offsets", path, _row)
    if len(offsets) != len(ids) + 1 or offsets[0] or offsets[-1] != len(active) or (np.diff(offsets) < 0).any():
        raise UserError(
            f"{path}: offsets must rise from 0 to the number of intervals ({len(active)}) "
            f"in {len(ids) + 1} steps, one more than there are clients"
        )
    trace = AvailabilityTrace(ids, offsets, active, inactive, finish, resampled)
    return check_availability(trace, str(path), lambda row: f"row {row}")


def names_in(path: Path) -> list[str]:
    """Return the names of a csv's columns or an npz's arrays; raise UserError if it is neither."""
    data = read_bytes(path)
    if path.suffix == ".csv":
        text = data[:65536].decode("utf-8-sig", errors="replace")
        try:
            return [name.strip() for name in next(csv.reader(io.StringIO(text, newline="")), [])]
        except csv.Error as error:
            raise UserError(f"{path}: line 1 is no csv ({error})") from None
    try:
        with Npz(io.BytesIO(data), MAX_BYTES) as arrays:
            return arrays.names
    except ValueError as error:
        raise UserError(f"{path}: not a whole .npz of plain arrays ({error})") from None


def _csv_columns(path: Path, names: Sequence[str]) -> tuple[IdColumn, list[np.ndarray], Sequence[int], bool]:
    """Read columns of a csv; others are ignored.

    Args:
        path: The file.
        names: Names of the columns; the first is client_id.

    Returns:
        The client ids, the other columns as float64 [rows], the line number of each row, and whether the trace is
        marked as resampled.

    """
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text file (UTF-8); a .csv trace is") from None
    reader = csv.reader(io.StringIO(text, newline=""))
    ids, values = IdColumn(), [array("d") for _ in names[1:]]
    lines = array("q")
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in names if name not in header]
        if missing and any(";" in name for name in header):
            raise UserError(f"{path}: semicolons separate its columns; a trace needs commas")
        if missing:
            raise UserError(f"{path}: the header has no column {missing[0]!r}; it must be {','.join(names)}")
        if twice := repeated_column(header, (*names, RESAMPLED)):
            raise UserError(f"{path}: {twice}")
        if RESAMPLED in header:
            names = (*names, RESAMPLED)
            values.append(array("d"))
        id_column, *value_columns = [header.index(name) for name in names]
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise UserError(f"{path}: line {reader.line_num} has {len(row)} values for {len(header)} columns")
            ids.append(row[id_column])
            for column, position in zip(values, value_columns, strict=True):
                column.append(_number(row[position]))
            lines.append(reader.line_num)
    except ValueError:
        raise UserError(f"{path}: line {reader.line_num} has {row[position]!r:.60} where a number belongs") from None
    except csv.Error as error:
        raise UserError(f"{path}: line {reader.line_num} is no csv ({error})") from None
    columns = [np.array(column, np.float64) for column in values]
    resampled = bool(columns.pop().any()) if RESAMPLED in names else False
    return ids, columns, lines, resampled


def _number(text: str) -> float:
    """Read a number; ValueError where it is none, or has an underscore: float() would read 1_40 as 140."""
    if "_" in text:
        raise ValueError
    return float(text)


def _npz_columns(path: Path, names: Sequence[str]) -> tuple[np.ndarray, list[np.ndarray], bool]:
    """Read arrays of an npz; object arrays (pickles) are refused.

    Args:
        path: The file.
        names: Names of the arrays; the first is client_id.

    Returns:
        The client ids, the other arrays as float64 [n], and whether the trace is marked as resampled.

    """
    data = read_bytes(path)
    columns = []
    try:
        with Npz(io.BytesIO(data), MAX_BYTES) as arrays:
            for name in names:
                if name not in arrays:
                    raise UserError(f"{path} has no array {name!r}; it must hold {', '.join(names)}")
                column = arrays[name]
                if name == names[0]:
                    ids = ids_of_array(column, path, _row)
                    continue
                if column.ndim != 1 or column.dtype.kind not in "iuf":
                    what = f"{column.dtype}{list(column.shape)}"
                    raise UserError(f"{path}: {name} is {what}; it must be one row of numbers")
                columns.append(column.astype(np.float64))
            resampled = RESAMPLED in arrays and bool(np.any(arrays[RESAMPLED]))
    except ValueError as error:
        raise UserError(f"{path}: not a whole .npz of plain arrays ({error})") from None
    return ids, columns, resampled


def _same_length(path: Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> None:
    for name, column in zip(names, columns, strict=True):
        if len(column) != len(columns[0]):
            raise UserError(f"{path}: {name} has {len(column)} rows, {names[0]} has {len(columns[0])}")


def _line(lines: Sequence[int]) -> Where:
    return lambda row: f"line {lines[row]}"


def _row(row: int) -> str:
    return f"row {row}"
