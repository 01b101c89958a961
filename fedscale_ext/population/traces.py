"""Device traces: FedScale's pickles, csv and npz files, and a population drawn from published figures."""

import csv
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.plain_pickle import read_plain_pickle
from fedscale_ext.streams import stream

RESAMPLED = "resampled"
_MARGINALS = Path(__file__).with_name("marginals.json")
_NPZ_NAMES = {
    "client_id": ("client_id",),
    "computation": ("computation", "computation_ms_per_sample"),
    "communication": ("communication", "communication_kbps"),
}


@dataclass(frozen=True)
class CapacityTrace:
    """One row per device: ``client_id`` int64, ms per sample and kbit/s float64, all positive and finite."""

    client_id: np.ndarray
    computation_ms: np.ndarray
    communication_kbps: np.ndarray


def read_capacity(path: str | Path) -> CapacityTrace:
    """Read a capacity trace: FedScale's pickle ``{id: {'computation', 'communication'}}``, or a csv
    (client_id,computation,communication) or npz of these columns. UserError names the first bad row."""
    path = _existing(path, "device_conf_file")
    if path.suffix == ".csv":
        columns = _csv_columns(path)
    elif path.suffix == ".npz":
        columns = _npz_columns(path)
    else:
        columns = _pickle_columns(path)
    ids, computation, communication = columns
    if len(ids) == 0:
        raise UserError(f"{path} holds no device")
    for name, values in (("computation", computation), ("communication", communication)):
        bad = np.flatnonzero(~(np.isfinite(values) & (values > 0)))
        if len(bad):
            raise UserError(
                f"{path}: {name} of device {ids[bad[0]]} is {values[bad[0]]:g}; it must be a finite number above zero"
            )
    return CapacityTrace(ids, computation, communication)


def read_availability(path: str | Path) -> Availability:
    """Read FedScale's ``client_behave_trace`` ``{id: {'active', 'inactive', 'finish_time'}}``: interval j
    of a device runs from active[j] to inactive[j] seconds, repeating every finish_time."""
    path = _existing(path, "device_avail_file")
    data = read_plain_pickle(path)
    if not isinstance(data, dict) or not data:
        raise UserError(f"{path} must hold {{id: {{'active', 'inactive', 'finish_time'}}}}")
    return Availability.from_intervals([_interval(path, key, entry) for key, entry in data.items()])


def resample_capacity(devices: int, seed: int) -> CapacityTrace:
    """Draw devices from the marginals of FedScale's trace (computation and communication are independent).

    Computation: its distinct values with their multiplicities. Communication: inverse of the published
    quantiles, linear in the logarithm. See device_traces/README.md.
    """
    marginals = json.loads(_MARGINALS.read_text(encoding="utf-8"))
    rng = stream(seed, "devices")
    table = marginals["computation_ms_per_sample"]
    values = np.array([float(value) for value in table])
    computation = rng.choice(np.repeat(values, list(table.values())), size=devices)
    quantiles = marginals["communication_kbps_quantiles"]
    levels = np.array([float(level) / 100.0 for level in quantiles])
    communication = np.exp(np.interp(rng.random(devices), levels, np.log(list(quantiles.values()))))
    return CapacityTrace(np.arange(1, devices + 1), computation, communication)


def _existing(path: str | Path, key: str) -> Path:
    found = Path(path).expanduser()
    if not found.is_file():
        raise UserError(
            f"{key} {found} is missing: give FedScale's trace file, or set {key}: "
            + (RESAMPLED if key == "device_conf_file" else "null")
        )
    return found


def _pickle_columns(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    data = read_plain_pickle(path)
    if not isinstance(data, dict):
        raise UserError(f"{path} must hold {{id: {{'computation', 'communication'}}}}, not a {type(data).__name__}")
    try:
        rows = [(int(key), float(row["computation"]), float(row["communication"])) for key, row in data.items()]
    except (KeyError, TypeError, ValueError):
        raise _first_bad_device(path, data) from None
    return _as_columns(rows)


def _first_bad_device(path: Path, data: Mapping[Any, Any]) -> UserError:
    for key, row in data.items():
        for name in ("computation", "communication"):
            try:
                int(key), float(row[name])
            except KeyError:
                return UserError(f"{path}: device {key!r} has no {name!r}")
            except (TypeError, ValueError):
                return UserError(f"{path}: device {key!r} has no number as {name!r}: {row!r:.80}")
    return UserError(f"{path} holds a device that cannot be read")


def _csv_columns(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = set(_NPZ_NAMES) - set(reader.fieldnames or ())
        if missing:
            raise UserError(f"{path} has no column {sorted(missing)[0]!r}; its header must be {','.join(_NPZ_NAMES)}")
        for row in reader:
            try:
                rows.append((int(row["client_id"]), float(row["computation"]), float(row["communication"])))
            except (TypeError, ValueError):
                raise UserError(f"{path}, line {reader.line_num}: not three numbers") from None
    return _as_columns(rows)


def _npz_columns(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            columns = []
            for name, aliases in _NPZ_NAMES.items():
                found = next((alias for alias in aliases if alias in arrays), None)
                if found is None:
                    raise UserError(f"{path} has no array {' or '.join(map(repr, aliases))} ({name})")
                columns.append(arrays[found])
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not an npz file of plain arrays: {error}") from None
    if len({column.shape for column in columns}) != 1 or columns[0].ndim != 1:
        raise UserError(f"{path}: its arrays must be of one length, they have {[c.shape for c in columns]}")
    try:
        return columns[0].astype(np.int64), columns[1].astype(np.float64), columns[2].astype(np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{path}: its arrays must hold numbers") from None


def _as_columns(rows: Iterable[tuple[int, float, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(list(rows), dtype=np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1].copy(), table[:, 2].copy()


def _interval(path: Path, key: Any, entry: Any) -> tuple[list[float], list[float], float]:
    try:
        begins = [float(value) for value in entry["active"]]
        ends = [float(value) for value in entry["inactive"]]
        period = float(entry["finish_time"])
    except KeyError as error:
        raise UserError(f"{path}: device {key!r} has no {error.args[0]!r}") from None
    except (TypeError, ValueError):
        raise UserError(f"{path}: 'active', 'inactive' or 'finish_time' of device {key!r} are not numbers") from None
    if len(begins) != len(ends):
        raise UserError(f"{path}: device {key!r} has {len(begins)} times 'active' but {len(ends)} 'inactive'")
    if not (np.isfinite([*begins, *ends]).all() and np.isfinite(period) and period > 0):
        raise UserError(f"{path}: device {key!r} has a time that is not finite, or no positive 'finish_time'")
    return begins, ends, period
