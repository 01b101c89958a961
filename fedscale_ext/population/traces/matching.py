"""Matching of clients to rows of a device trace: by name, or by order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.errors import UserError, listed
from fedscale_ext.data.wording import composed, counted


@dataclass(frozen=True)
class DeviceMatch:
    """The trace's row of each client, int64 [clients]; whether rows were matched by name; and a text about it."""

    rows: np.ndarray
    by_id: bool
    how: str


def match_rows(client_id: np.ndarray, clients: Sequence[str], match: str, source: str) -> DeviceMatch:
    """Find each client's row in a trace.

    ``match`` client_id gives each client the row of its name, ``order`` gives client i row (i - 1) mod n. ``auto``
    matches by name if every client has a row. Otherwise whole numbers match by order, as in FedScale, if they number
    the rows of at least as many devices as clients, or name no client.

    Args:
        client_id: Ids of the trace's rows, int64 or text [n].
        clients: Names of the clients.
        match: The rule, ``client_id``, ``order`` or ``auto``.
        source: Name of the trace, for messages.

    Raises:
        UserError: If a client has no row.

    """
    if match == "order":
        return _by_order(len(client_id), len(clients))
    row_of = {str(name): row for row, name in enumerate(client_id.tolist())}
    rows = _rows_of(clients, row_of)
    lacking = [name for name, row in zip(clients, rows, strict=True) if row is None]
    if not lacking:
        return _by_id(np.array(rows, np.int64), len(client_id))
    numbers_rows = _numbers_rows(client_id) and len(client_id) >= len(clients)
    nobody_is_named = len(lacking) == len(clients)
    if match == "auto" and (numbers_rows or (nobody_is_named and client_id.dtype.kind == "i")):
        return _by_order(len(client_id), len(clients))
    if nobody_is_named:
        raise UserError(
            f"{source}: none of its client ids ({listed(list(row_of), 3)}) is the name of a client "
            f"({listed(lacking, 3)}); correct client_id, or set device_match: order"
        )
    # text names devices, which matching by order would give to other clients
    otherwise = ", or set device_match: order" if client_id.dtype.kind == "i" else ""
    names = listed(list(map(repr, lacking)))
    raise UserError(
        f"{source} has no row for {len(lacking):,} of {len(clients):,} clients: {names}; add a row for each{otherwise}"
    )


def _rows_of(clients: Sequence[str], row_of: Mapping[str, int]) -> list[int | None]:
    """The row of each client's name, None where there is none. Where no row has it to the letter, one that differs in
    how accented letters are coded has it, if it is the only one."""
    alike: dict[str, list[int]] = {}
    for name, row in row_of.items():
        alike.setdefault(composed(name), []).append(row)
    close = {name: rows[0] for name, rows in alike.items() if len(rows) == 1}
    return [row_of.get(name, close.get(composed(name))) for name in clients]


def _numbers_rows(client_id: np.ndarray) -> bool:
    """Return whether ids merely number the rows, from 0 or 1 on."""
    return client_id.dtype.kind == "i" and any(
        np.array_equal(client_id, np.arange(first, first + len(client_id))) for first in (0, 1)
    )


def _by_order(devices: int, clients: int) -> DeviceMatch:
    repeated = f" ({devices:,} devices, repeated)" if devices < clients else ""
    return DeviceMatch(np.arange(clients) % devices, False, f"by order{repeated}")


def _by_id(rows: np.ndarray, devices: int) -> DeviceMatch:
    named = len(np.unique(rows))
    remarks = [f"{counted(devices - named, 'more row')}, of clients that the data lack"] if devices > named else []
    if named < len(rows):
        have = counted(len(rows) - named, "client has", "clients have")
        remarks.append(f"{have} the row of another whose name is coded otherwise")
    return DeviceMatch(rows, True, "by client_id" + (f" ({'; '.join(remarks)})" if remarks else ""))
