"""What a job reached and cost by type of device: accuracy, rounds until it settled, time, energy and transmission
until then (Moss, IMWUT 2025, section 4.2.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedscale_ext.core.missing_values import mean_of_known
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.accuracy import client_accuracy
from fedscale_ext.metrics.convergence import settled
from fedscale_ext.metrics.cost import MB
from fedscale_ext.metrics.energy import CLASSES, LATENCY_MS, POWER_W, joules

_ENERGY = (
    "modelled, not measured: power of the device's class times seconds of computation, and Wi-Fi's power and joules "
    "per bit (fedscale_ext/metrics/energy.py)"
)


@dataclass(frozen=True)
class _Participations:
    """All participations of a job's rounds, a row for each: its round, its client - 1, and what it cost."""

    round: np.ndarray
    client: np.ndarray
    upload_bytes: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray
    energy_j: np.ndarray


def device_type_figures(
    records: Sequence[RoundRecord],
    type_of_client: np.ndarray,
    names: Sequence[str],
    computation_ms: np.ndarray,
    *,
    one_way_bytes: np.ndarray | None = None,
    kept_share: np.ndarray | None = None,
    tested: Sequence[RoundRecord] | None = None,
) -> dict[str, Any]:
    """Figures for the summary, JSON values: ``types`` has a row for each and one for all of them.

    ``type_of_client`` int64 [clients] has the index in ``names`` of each client's type. ``computation_ms``
    float64 [clients] is the devices' latency per sample, which tells their power. ``one_way_bytes`` float64 [clients]
    is what a device uploads as Moss's paper counts it; by default, what a participation of its type has uploaded on
    average over all ``records`` (0 where nobody took part). ``kept_share`` float64 [clients] is the part of the model
    that a client holds in the end, for methods that keep parts of one model. ``tested`` are the rounds whose tests
    count, by default all that have one. Where none of them tested anybody, nothing settles, and all rounds count.

    Time, energy and traffic are sums of what the records say of each participant. Time and energy are means over a
    type's devices. ``one_way_mb`` is the accounting of Moss's Table 4: a device's upload, times the rounds.
    ``traffic_mb`` counts both directions of all participants.
    """
    if tested is None:
        tested = [record for record in records if record.evaluation is not None]
    mean, curves = _curves(tested, type_of_client, len(names))
    settled_index = settled(mean)
    last = (
        tested[settled_index].round if settled_index is not None else max((each.round for each in records), default=0)
    )
    taken = _participations(records, computation_ms)
    one_way = [_one_way(taken, type_of_client == index, one_way_bytes) for index in range(len(names))]
    types = [
        {"type": name, **_of_type(taken, tested, curves[:, index], type_of_client == index, one_way[index], last)}
        for index, name in enumerate(names)
    ]
    at_the_end = {} if kept_share is None else {"kept_share": kept_share}
    for what in ("before_training", "after_training", "on_all"):
        if records and (evaluation := getattr(records[-1], what)) is not None:
            at_the_end[f"accuracy_{what}"] = client_accuracy(evaluation)
    for name, values in at_the_end.items():
        for number, row in enumerate(types):
            row[name] = mean_of_known(values[type_of_client == number])
    all_types = {
        "type": "all",  # means over all devices; of traffic and transmission the sum over the types
        "clients": len(type_of_client),
        "accuracy": mean[-1] if mean else None,
        "settled_round": last if settled_index is not None else None,
        "settled_accuracy": mean[settled_index] if settled_index is not None else None,
        "one_way_mb": sum(one_way) * last / MB,
        "traffic_mb": sum(each["traffic_mb"] for each in types),
        **{
            name: sum(each["clients"] * each[name] for each in types) / max(len(type_of_client), 1)
            for name in ("time_s", "modelled_energy_j")
        },
        **{name: mean_of_known(values) for name, values in at_the_end.items()},
    }
    return {
        "types": [*types, all_types],
        "energy": _ENERGY,
        "device_classes": [{"class": kind, "watts": watts} for kind, watts in zip(CLASSES, POWER_W, strict=True)],
        "device_class_bounds_ms": list(LATENCY_MS),
    }


def _curves(tested: Sequence[RoundRecord], type_of_client: np.ndarray, types: int) -> tuple[list[float], np.ndarray]:
    """Accuracies float64 [evaluations] and [evaluations, types].

    They are means over all clients and over a type's, each on its own test samples.
    """
    mean, curves = [], np.full((len(tested), types), np.nan)
    for row, record in zip(curves, tested, strict=True):
        assert record.evaluation is not None
        accuracy = client_accuracy(record.evaluation)  # reads a file
        mean.append(mean_of_known(accuracy))
        row[:] = [mean_of_known(accuracy[type_of_client == index]) for index in range(types)]
    return mean, curves


def _of_type(
    taken: _Participations,
    tested: Sequence[RoundRecord],
    curve: np.ndarray,
    mine: np.ndarray,
    one_way: float,
    untested_last: int,
) -> dict[str, Any]:
    """Figures of one type; costs until it settled, or until round ``untested_last`` where nobody of it is tested."""
    settled_index = settled(curve.tolist())
    last = tested[settled_index].round if settled_index is not None else untested_last
    counted = mine[taken.client] & (taken.round <= last)
    clients = int(mine.sum())
    return {
        "clients": clients,
        "accuracy": float(curve[-1]) if len(curve) else None,
        "curve": [[record.round, float(value)] for record, value in zip(tested, curve, strict=True)],
        "settled_round": last if settled_index is not None else None,
        "settled_accuracy": float(curve[settled_index]) if settled_index is not None else None,
        "one_way_mb": one_way * last / MB,
        "traffic_mb": float(taken.bytes[counted].sum()) / MB,
        "time_s": float(taken.seconds[counted].sum()) / max(clients, 1),
        "modelled_energy_j": float(taken.energy_j[counted].sum()) / max(clients, 1),
    }


def _participations(records: Sequence[RoundRecord], computation_ms: np.ndarray) -> _Participations:
    """What the records say of each participant, and the energy that follows from it."""

    def column(name: str) -> np.ndarray:
        return np.array([value for record in records for value in getattr(record, name)], dtype=np.float64)

    client = np.array([client - 1 for record in records for client in record.participants], dtype=np.int64)
    down, up = column("client_download_bytes"), column("client_upload_bytes")
    computation, communication = column("client_computation_s"), column("client_communication_s")
    return _Participations(
        round=np.array([record.round for record in records for _ in record.participants], dtype=np.int64),
        client=client,
        upload_bytes=up,
        bytes=down + up,
        seconds=computation + communication,
        energy_j=joules(computation_ms[client], computation, communication, down, up),
    )


def _one_way(taken: _Participations, mine: np.ndarray, one_way_bytes: np.ndarray | None) -> float:
    """Bytes that a device of a type uploads in a round; 0 where none has."""
    uploads = taken.upload_bytes[mine[taken.client]] if one_way_bytes is None else one_way_bytes[mine]
    return float(uploads.mean()) if len(uploads) else 0.0
