"""Traces as numpy columns, checked entry by entry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.errors import UserError

Where = Callable[[int], str]  # row number -> text that locates the row in its file
Content = Callable[[int, str], str]  # row number, column -> text of the file's content there

# availability counts whole microseconds in 64 bits: beyond these seconds they would be none, or wrap around
_MIN_S, _MAX_S = 1e-6, 1e12


@dataclass(frozen=True)
class CapacityTrace:
    """FedScale's ``client_device_capacity``: row i describes one device.

    ``client_id`` int64[n], or text[n] that names clients; ``computation_ms`` float64[n], latency of one sample through
    MobileNet in ms; ``communication_kbps`` float64[n], bandwidth in kbit/s. ``resampled``: drawn from published
    marginals, not observed; files keep this.
    """

    client_id: np.ndarray
    computation_ms: np.ndarray
    communication_kbps: np.ndarray
    resampled: bool = False

    def __len__(self) -> int:
        return len(self.client_id)


@dataclass(frozen=True)
class AvailabilityTrace:
    """FedScale's ``client_behave_trace`` in flat arrays.

    Device i (``client_id[i]``) is online from ``active[k]`` to ``inactive[k]`` (seconds, both ends
    included) for k in ``offsets[i]:offsets[i + 1]``, and repeats this every ``finish_time[i]`` seconds.
    ``offsets`` is int64[n + 1], ``active`` and ``inactive`` are float64[offsets[n]], ``finish_time``
    float64[n]; ``resampled`` as in :class:`CapacityTrace`.
    """

    client_id: np.ndarray
    offsets: np.ndarray
    active: np.ndarray
    inactive: np.ndarray
    finish_time: np.ndarray
    resampled: bool = False

    def __len__(self) -> int:
        return len(self.client_id)

    def take(self, rows: np.ndarray) -> "AvailabilityTrace":
        """The devices ``rows`` int64[m], in that order."""
        sizes = np.diff(self.offsets)[rows]
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        intervals = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
        return AvailabilityTrace(
            self.client_id[rows],
            offsets,
            self.active[intervals],
            self.inactive[intervals],
            self.finish_time[rows],
            self.resampled,
        )


def check_capacity(trace: CapacityTrace, source: str, where: Where, content: Content | None = None) -> CapacityTrace:
    """Return ``trace`` if every row is a valid device.

    Args:
        trace: The columns.
        source: Name of the file, for messages.
        where: Text that locates a row.
        content: Text of the file's content, where the column's number does not show it.

    Raises:
        UserError: With the first row that is no valid device.

    """
    if not len(trace):
        raise UserError(f"{source} holds no device; a capacity trace needs at least one")
    _check_ids(trace.client_id, source, where)
    columns = {
        "computation": (trace.computation_ms, "ms per sample"),
        "communication": (trace.communication_kbps, "kbit/s"),
    }
    _check_positive(columns, source, where, content)
    return trace


def check_availability(
    trace: AvailabilityTrace, source: str, where: Where, content: Content | None = None
) -> AvailabilityTrace:
    """Return ``trace`` if every time is possible.

    A client without intervals is allowed; it is never online. So is an interval that ends before it begins, or begins
    after ``finish_time``: FedScale's clients are never online in it.

    Args:
        trace: The columns.
        source: Name of the file, for messages.
        where: Text that locates a row.
        content: Text of the file's content, where the column's number does not show it.

    Raises:
        UserError: With the first row that has an impossible time.

    """
    if not len(trace):
        raise UserError(f"{source} holds no client; an availability trace needs at least one")
    _check_ids(trace.client_id, source, where)
    _check_positive({"finish_time": (trace.finish_time, "seconds")}, source, where, content)
    bad = np.flatnonzero((trace.finish_time < _MIN_S) | (trace.finish_time > _MAX_S))
    if len(bad):
        raise UserError(
            f"{source}: {where(bad[0])} has finish_time {trace.finish_time[bad[0]]:g}; "
            f"it must be from {_MIN_S:g} to {_MAX_S:g} seconds"
        )
    for name, times in (("active", trace.active), ("inactive", trace.inactive)):
        bad = np.flatnonzero(~((times >= 0) & (times <= _MAX_S)))
        if len(bad):
            row = int(np.searchsorted(trace.offsets, bad[0], side="right")) - 1
            raise UserError(
                f"{source}: {where(row)} has {name} time {times[bad[0]]:g}; "
                f"it must be a number of seconds from 0 to {_MAX_S:g}"
            )
    return trace


def _check_ids(ids: np.ndarray, source: str, where: Where) -> None:
    if ids.dtype.kind == "i" and (ids < 0).any():
        row = int(np.argmax(ids < 0))
        raise UserError(f"{source}: {where(row)} has client id {ids[row]}; ids are 0 or above")
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if len(again):
        row = int(order[again + 1].min())
        raise UserError(repeated(source, where(row), ids[row]))


def repeated(source: str, where: str, client: object) -> str:
    """Return the message about a second row of a client."""
    return f"{source}: {where} repeats client id {client}; list each client once"


def _check_positive(
    columns: Mapping[str, tuple[np.ndarray, str]], source: str, where: Where, content: Content | None
) -> None:
    bad = {name: ~(np.isfinite(column) & (column > 0)) for name, (column, _) in columns.items()}
    rows = {name: int(np.argmax(wrong)) for name, wrong in bad.items() if wrong.any()}
    if rows:
        name = min(rows, key=rows.__getitem__)
        row, (column, unit) = rows[name], columns[name]
        what = content(row, name) if content else f"{name} {column[row]:g}"
        raise UserError(f"{source}: {where(row)} has {what}; {name} is a finite number above 0 ({unit})")
