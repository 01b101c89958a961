"""Reads FedScale's trace files: pickle (plain data only), csv and npz.

This is the only module of the package that touches pickle. A pickle is a program; FedScale's traces
use only the part of that language that builds dicts, lists, numbers and strings. The reader first
walks the opcodes of the file and refuses any other by name, so that nothing has run before the
decision; then it decodes with an unpickler that resolves no global and no persistent id.
"""

import io
import math
import pickle
import pickletools
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.traces import tables
from fedscale_ext.population.traces.columns import (
    AvailabilityTrace,
    CapacityTrace,
    Content,
    Where,
    check_availability,
    check_capacity,
)
from fedscale_ext.util.reading import MEGA

# Bounds of what decoding may cost. FedScale's own availability trace has a third of a million containers.
_MAX_BYTES = 256 * MEGA
_MAX_CONTAINERS = 8_000_000
_LONG_NUMBER = 22  # characters of a line with the largest number of 64 bits
_MAX_LONG_NUMBERS = 1000  # thousands of them can be chosen so that a dict needs hours to tell them apart
_MAX_NUMBER_LENGTH = 4000
_ADVICE = "a trace holds only dicts, lists, numbers and text; convert it to csv or npz where it was made"
_PLAIN = frozenset(
    "PROTO FRAME STOP MARK EMPTY_DICT DICT SETITEM SETITEMS EMPTY_LIST LIST APPEND APPENDS "
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET".split()
)
# These carry the name of a global; the unpickler below is run up to them to learn that name.
_GLOBALS = frozenset({"GLOBAL", "STACK_GLOBAL", "INST"})
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_OPCODES = {ord(op.code): op for op in pickletools.opcodes}
# Bytes from a plain opcode to the next one; 0 where the length is in the data or the opcode is special.
_STEP = [0] * 256
for _code, _op in _OPCODES.items():
    if _op.name in _PLAIN and _op.name not in ("STOP", "LONG_BINPUT"):
        _size = 0 if _op.arg is None else _op.arg.n
        _STEP[_code] = 1 + _size if _size >= 0 else 0


Entries = dict[Any, dict[Any, Any]]  # content of a trace's pickle: one dict per client


class _GlobalFound(Exception):
    """The name of a global that a pickle asks for."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise _GlobalFound(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _GlobalFound(f"persistent id {pid!r}")


def read_capacity(path: str | Path) -> CapacityTrace:
    """Read a device capacity trace.

    A pickle is ``{id: {'computation': ms per sample, 'communication': kbit/s}}``. A ``.csv`` has the columns
    ``client_id,computation,communication``. An ``.npz`` has ``client_id``, ``computation_ms_per_sample`` and
    ``communication_kbps``.

    Raises:
        UserError: With the first entry (or line, row, opcode, global) that is wrong.

    """
    path = Path(path)
    if path.suffix == ".csv":
        return tables.capacity_csv(path)
    if path.suffix == ".npz":
        return tables.capacity_npz(path)
    return _capacity(_entries(path), path)


def read_availability(path: str | Path) -> AvailabilityTrace:
    """Read an availability trace.

    A pickle is ``{id: {'active': [s, …], 'inactive': [s, …], 'finish_time': s, …}}``. A ``.csv`` has one interval per
    line, ``client_id,active,inactive,finish_time``. An ``.npz`` has the arrays of :class:`AvailabilityTrace`.

    Raises:
        UserError: With the first entry (or line, row, opcode, global) that is wrong.

    """
    path = Path(path)
    if path.suffix == ".csv":
        return tables.availability_csv(path)
    if path.suffix == ".npz":
        return tables.availability_npz(path)
    return _availability(_entries(path), path)


def read_trace(path: str | Path) -> CapacityTrace | AvailabilityTrace:
    """Read a trace of either kind, recognised by its columns, arrays or first entry.

    Raises:
        UserError: If it is neither kind, or an entry is wrong.

    """
    path = Path(path)
    if path.suffix in (".csv", ".npz"):
        names = tables.names_in(path)
    else:
        entries = _entries(path)
        names = list(next(iter(entries.values()), ()))
    is_capacity = "computation" in names or "computation_ms_per_sample" in names
    if not is_capacity and "active" not in names:
        raise UserError(f"{path} is no trace: it has neither computation (capacity) nor active times (availability)")
    if path.suffix in (".csv", ".npz"):
        return read_capacity(path) if is_capacity else read_availability(path)
    return _capacity(entries, path) if is_capacity else _availability(entries, path)


def _capacity(entries: Entries, path: Path) -> CapacityTrace:
    trace = CapacityTrace(
        _client_ids(entries, path), _numbers(entries, "computation"), _numbers(entries, "communication")
    )
    return check_capacity(trace, str(path), *_words(entries))


def _availability(entries: Entries, path: Path) -> AvailabilityTrace:
    ids = _client_ids(entries, path)
    where, content = _words(entries)
    active, active_sizes = _times(entries, "active", path)
    inactive, inactive_sizes = _times(entries, "inactive", path)
    if (active_sizes != inactive_sizes).any():
        row = int(np.argmax(active_sizes != inactive_sizes))
        raise UserError(
            f"{path}: {where(row)} has {active_sizes[row]} active and {inactive_sizes[row]} "
            "inactive times; they come in pairs"
        )
    offsets = np.concatenate(([0], np.cumsum(active_sizes)))
    trace = AvailabilityTrace(ids, offsets, active, inactive, _numbers(entries, "finish_time"))
    return check_availability(trace, str(path), where, content)


def _entries(path: Path) -> Entries:
    """``{key: {name: value}}`` out of a plain pickle."""
    data = _load_plain(path)
    if type(data) is not dict:
        raise UserError(f"{path} holds {_shown(data)}; a trace is a dict of clients")
    for key, entry in data.items():
        if type(entry) is not dict:
            raise UserError(f"{path}: client {_shown(key)} is {_shown(entry)}; it must be a dict")
    return data


def _load_plain(path: Path) -> Any:
    data = tables.read_bytes(path, _MAX_BYTES)
    # an empty list or dict is one byte of the file and sixty in memory; other bytes that look like one are counted too
    if sum(map(data.count, (b"]", b"}", b"l", b"d"))) > _MAX_CONTAINERS:
        raise UserError(f"{path}: refused, it could hold more than {_MAX_CONTAINERS:,} dicts and lists")
    try:
        _refuse_other_opcodes(data, path)
        return _PlainUnpickler(io.BytesIO(data)).load()
    except _GlobalFound as found:
        raise UserError(f"{path}: refused, this pickle asks for {found}; {_ADVICE}") from None
    except UserError:
        raise
    except (EOFError, IndexError):
        raise UserError(f"{path}: this pickle is truncated") from None
    except Exception as error:  # a pickle's bytes can make the decoder raise nearly anything
        raise UserError(f"{path}: not a whole pickle ({error or type(error).__name__})") from None


def _refuse_other_opcodes(data: bytes, path: Path) -> None:
    """Walk the opcodes without running them; raise UserError at the first that is not plain.

    A global ends the walk: the unpickler refuses it by name when it gets there.
    """
    at, step, long_numbers = 0, _STEP, 0
    while True:
        while skip := step[data[at]]:  # five million opcodes in the full trace: nothing else in here
            at += skip
        op = _OPCODES.get(data[at])
        name = op.name if op else f"0x{data[at]:02x}"
        if name == "STOP" or name in _GLOBALS:
            return
        if op is None and at == 0:
            raise UserError(f"{path} is no trace: it is neither a pickle nor named as csv or npz are; {_ADVICE}")
        if op is None or op.name not in _PLAIN:
            raise UserError(f"{path}: refused, opcode {name} at byte {at}; {_ADVICE}")
        at += 1
        if name == "LONG_BINPUT":  # its index sizes the decoder's table: bound it by the file's own length
            if int.from_bytes(data[at : at + 4], "little") > len(data):
                raise UserError(f"{path}: refused, opcode {name} with an index past the file's length")
            at += 4
        elif op.arg is not None and op.arg.n == pickletools.UP_TO_NEWLINE:
            line, at = at, data.index(b"\n", at) + 1
            size = at - line if name in ("INT", "LONG", "FLOAT", "PUT", "GET") else 0
            long_numbers += size > _LONG_NUMBER and name in ("INT", "LONG")
            if size > _MAX_NUMBER_LENGTH:
                raise UserError(f"{path}: refused, opcode {name} with a number of {size:,} characters")
            if name == "PUT" and int(data[line:at]) > len(data):
                raise UserError(f"{path}: refused, opcode {name} with an index past the file's length")
        elif op.arg is not None:
            width = _LENGTH_BYTES[op.arg.n]
            length = int.from_bytes(data[at : at + width], "little")
            long_numbers += length > 8 and name in ("LONG1", "LONG4")
            at += width + length
        if long_numbers > _MAX_LONG_NUMBERS:
            raise UserError(f"{path}: refused, more than {_MAX_LONG_NUMBERS:,} numbers of more than 64 bits")


def _client_ids(entries: Entries, path: Path) -> np.ndarray:
    for key in entries:
        if type(key) is not int or not 0 <= key < 2**63:
            raise UserError(f"{path}: key {_shown(key)} is no client id; ids are whole numbers, 0 or above")
    return np.fromiter(entries, np.int64, len(entries))


def _words(entries: Entries) -> tuple[Where, Content]:
    """Return functions that locate a row of a pickled trace, and that show its content."""
    keys = list(entries)

    def content(row: int, name: str) -> str:
        entry = entries[keys[row]]
        return f"{name} {_shown(entry[name])}" if name in entry else f"no {name!r}"

    return (lambda row: f"client {keys[row]}"), content


def _numbers(entries: Entries, name: str) -> np.ndarray:
    """float64 column; nan where there is no number, for the checks to name."""
    values = [entry.get(name) for entry in entries.values()]
    return _floats(values if _all_numbers(values) else [v if type(v) in (int, float) else math.nan for v in values])


def _times(entries: Entries, name: str, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return all clients' times concatenated (float64), and the number of each (int64)."""
    flat: list[Any] = []
    for key, entry in entries.items():
        times = entry.get(name)
        if type(times) is not list:
            what = f"{name} {_shown(times)}" if name in entry else f"no {name!r}"
            raise UserError(f"{path}: client {key} has {what}; {name} is a list of seconds")
        if not _all_numbers(times):
            bad = next(time for time in times if type(time) not in (int, float))
            raise UserError(f"{path}: client {key} has {name} time {_shown(bad)}; it must be a number")
        flat += times
    sizes = np.fromiter((len(entry[name]) for entry in entries.values()), np.int64, len(entries))
    return _floats(flat), sizes


def _all_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int, float}  # by type: a bool is an int to isinstance


def _floats(values: list[Any]) -> np.ndarray:
    try:
        return np.array(values, np.float64)
    except OverflowError:  # a whole number beyond floats: infinite, for the checks to name
        return np.array([math.inf if abs(value) > sys.float_info.max else value for value in values], np.float64)


def _shown(value: Any) -> str:
    """Write a value of a pickle for an error message: short, whatever its size or depth."""
    if type(value) is int and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)[:60] if type(value) in (str, int, float) else f"a {type(value).__name__}"
