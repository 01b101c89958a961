"""What a job reached and cost by type of device: accuracy, rounds until it settled, time, energy and transmission
until then (Moss, IMWUT 2025, section 4.2.5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.accuracy import client_accuracy
from fedscale_ext.metrics.convergence import settled
from fedscale_ext.metrics.cost import MB
from fedscale_ext.metrics.energy import CLASSES, LATENCY_MS, POWER_W

_ENERGY = (
    "modelled, not measured: power of the device's class times seconds of computation, and Wi-Fi's power and joules "
    "per bit (fedscale_ext/metrics/energy.py)"
)


@dataclass(frozen=True)
class Participation:
    """What one round takes of each client, float64 [clients]: bytes handed in, bytes in both directions, seconds, and
    joules."""

    one_way_bytes: np.ndarray
    bytes: np.ndarray
    seconds: np.ndarray
    energy_j: np.ndarray


def device_type_figures(
    records: Sequence[RoundRecord],
    own: np.ndarray,
    names: Sequence[str],
    usual: Participation,
    first: Participation | None = None,
    kept: np.ndarray | None = None,
) -> dict[str, Any]:
    """Figures for the summary, JSON values: ``types`` has a row for each and one for all of them.

    ``own`` int64 [clients]: the place in ``names`` of each client's type; ``first``: what a client's first round takes,
    where that is something else; ``kept`` float64 [clients], which part of the one model it holds in the end, of
    methods with one. Time and energy are means over a type's devices. ``one_way_mb`` is the accounting of
    the paper's Table 4: what a device hands in, times the rounds; ``traffic_mb`` counts both directions of everybody
    who took part.
    """
    tested = [record for record in records if record.evaluation is not None]
    curves = _curves(tested, own, len(names))
    mean = [_mean(client_accuracy(record.evaluation)) for record in tested if record.evaluation]
    types = [
        {"type": name, **_of_type(records, tested, curves[:, place], own == place, usual, first or usual)}
        for place, name in enumerate(names)
    ]
    at_the_end = {} if kept is None else {"kept_share": kept}
    for what in ("before_training", "after_training", "on_all"):
        if records and (found := getattr(records[-1], what)) is not None:
            at_the_end[f"accuracy_{what}"] = client_accuracy(found)
    for name, values in at_the_end.items():
        for number, row in enumerate(types):
            row[name] = _mean(values[own == number])
    place = settled(mean)
    last = tested[place].round if place is not None else 0
    all_types = {
        "type": "all",  # means over all devices; of traffic and transmission the sum over the types
        "clients": len(own),
        "accuracy": mean[-1] if mean else None,
        "settled_round": last or None,
        "settled_accuracy": mean[place] if place is not None else None,
        "one_way_mb": sum(_one_way(usual, own == place) for place in range(len(names))) * last / MB,
        "traffic_mb": sum(each["traffic_mb"] for each in types),
        **{
            name: sum(each["clients"] * each[name] for each in types) / max(len(own), 1)
            for name in ("time_s", "modelled_energy_j")
        },
        **{name: _mean(values) for name, values in at_the_end.items()},
    }
    return {
        "types": [*types, all_types],
        "energy": _ENERGY,
        "device_classes": [{"class": kind, "watts": watts} for kind, watts in zip(CLASSES, POWER_W, strict=True)],
        "device_class_bounds_ms": list(LATENCY_MS),
    }


def _mean(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def _curves(tested: Sequence[RoundRecord], own: np.ndarray, types: int) -> np.ndarray:
    """Accuracy float64 [evaluations, types]: means over a type's clients, each on its own test samples."""
    curves = np.full((len(tested), types), np.nan)
    for row, record in zip(curves, tested, strict=True):
        assert record.evaluation is not None
        accuracy = client_accuracy(record.evaluation)
        row[:] = [_mean(accuracy[own == place]) for place in range(types)]
    return curves


def _of_type(
    records: Sequence[RoundRecord],
    tested: Sequence[RoundRecord],
    curve: np.ndarray,
    mine: np.ndarray,
    usual: Participation,
    first: Participation,
) -> dict[str, Any]:
    place = settled(curve.tolist()) if len(curve) and not np.isnan(curve).any() else None
    last = tested[place].round if place is not None else 0
    taken = np.zeros(len(mine), dtype=np.int64)
    for record in records:
        if record.round <= last:
            taken[np.array(record.participants, dtype=np.int64) - 1] += 1
    clients = int(mine.sum())

    def total(name: str) -> float:
        each, at_first = getattr(usual, name), getattr(first, name)
        return float((taken * each + (taken > 0) * (at_first - each))[mine].sum())

    return {
        "clients": clients,
        "accuracy": float(curve[-1]) if len(curve) else None,
        "curve": [[record.round, float(value)] for record, value in zip(tested, curve, strict=True)],
        "settled_round": last or None,
        "settled_accuracy": float(curve[place]) if place is not None else None,
        "one_way_mb": _one_way(usual, mine) * last / MB,
        "traffic_mb": total("bytes") / MB,
        "time_s": total("seconds") / max(clients, 1),
        "modelled_energy_j": total("energy_j") / max(clients, 1),
    }


def _one_way(usual: Participation, mine: np.ndarray) -> float:
    """Bytes that a device of a type hands in."""
    return float(usual.one_way_bytes[mine].mean()) if mine.any() else 0.0
