"""Whether a unit's result has the form that the aggregator reads, whoever sent it: numbers, lengths and names.

Whether an update is a good one (finite, of the model's shapes) is looked at client by client, in ``checks.py``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fedscale.cloud import commons

from fedscale_ext.tasks import around_training, calibration, personalise
from fedscale_ext.tasks import bn_statistics as static_statistics
from fedscale_ext.tasks import test_on_all as everybody
from fedscale_ext.tasks.client_tensors import section_name
from fedscale_ext.tasks.evaluation import COLUMNS, read_figures
from fedscale_ext.tasks.reduction import CLASSES, SUM
from fedscale_ext.transport.unit_ledger import Unit
from fedscale_ext.transport.wire import Section, WireError

_MOST_TEXT = 2000  # of a client's reason to fail
_MOST_KINDS = 100  # of work that an executor tells its seconds of
_LONGEST_S = 1e9


def check_result(
    unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section], test_sizes: np.ndarray
) -> None:
    """WireError, which says what is wrong, unless the message can be the result of ``unit``.

    ``test_sizes``: test samples of each client, int64 [clients].
    """
    _check_seconds(header.get("seconds", {}))
    if unit.event == commons.CLIENT_TRAIN:
        _check_training(unit, header, sections)
    elif unit.event == commons.MODEL_TEST:
        _check_figures(unit, sections, test_sizes[np.asarray(unit.header["clients"]) - 1])
    elif unit.event in (personalise.EVENT, around_training.EVENT):
        missing, clients = header.get("missing"), unit.header["clients"]
        if not isinstance(missing, list) or not set(map(str, missing)) <= set(map(str, clients)):
            raise WireError("missing names other clients than the unit's")
        names = around_training.SECTIONS if unit.event == around_training.EVENT else ("figures",)
        _check_figures(unit, sections, test_sizes[np.asarray(clients) - 1], names)
    elif unit.event == everybody.EVENT:
        _check_figures(unit, sections, np.full(len(unit.header["clients"]), test_sizes.sum()))
    elif unit.event == static_statistics.EVENT:
        if sections.keys() != {static_statistics.SUMS}:
            raise WireError("a measurement of statistics has one section, sums")
    elif unit.event == calibration.EVENT:
        _check_calibration(header.get("seconds_by_size"), unit.header["sizes"])


def _check_training(unit: Unit, header: Mapping[str, Any], sections: Mapping[str, Section]) -> None:
    results, items = header.get("results"), unit.header["items"]
    if not isinstance(results, list) or len(results) != len(items):
        raise WireError(f"results are not a list of {len(items)}")
    for result in results:
        if not isinstance(result, dict) or type(result.get("client")) is not int:
            raise WireError("a result names no client")
        for name, value in result.items():
            if not _is_plain(value):
                raise WireError(f"{name[:40]!r} of a client is no number or short text")
    if "weight" in header and not _is_number(header["weight"]):
        raise WireError("weight is no number")
    known = {SUM, CLASSES} if unit.header["sum"] else set(map(str, range(len(items))))
    for kind in unit.header.get("handed", ()):
        known |= {section_name(kind, place) for place in range(len(items))}
    if not sections.keys() <= known:
        raise WireError("a section that nobody asked for")


def _check_figures(
    unit: Unit, sections: Mapping[str, Section], counts: np.ndarray, names: Sequence[str] = ("figures",)
) -> None:
    if sections.keys() != set(names):
        raise WireError(f"an evaluation's sections are {' and '.join(names)}")
    for name in names:
        figures = read_figures(unit.header, sections[name])
        if len(figures) != len(counts):
            raise WireError(f"figures of {len(figures)} clients, {len(counts)} were asked for")
        for begin in range(0, figures.shape[1], len(COLUMNS)):
            correct, top5, _ = figures[:, begin : begin + len(COLUMNS)].T
            # comparisons with NaN are false: it is refused too. A loss may be anything: models diverge
            whole = (correct % 1 == 0) & (top5 % 1 == 0)
            if not ((correct >= 0) & (correct <= top5) & (top5 <= counts) & whole).all():
                raise WireError("figures that no count of samples can have")


def _check_calibration(seconds: Any, sizes: Sequence[int]) -> None:
    if not isinstance(seconds, list) or not 0 < len(seconds) <= len(sizes):
        raise WireError("seconds_by_size is not a list of as many sizes as asked for")
    for entry in seconds:
        match entry:
            case [int(size), float(spent)] if type(size) is int and size in sizes and 0 < spent < _LONGEST_S:
                pass
            case _:
                raise WireError("seconds_by_size holds something other than sizes and their seconds")
    if len({size for size, _ in seconds}) != len(seconds):
        raise WireError("seconds_by_size names a size twice")


def _check_seconds(seconds: Any) -> None:
    if not isinstance(seconds, dict) or len(seconds) > _MOST_KINDS:
        raise WireError("seconds is not an object of some kinds of work")
    for kind, spent in seconds.items():
        if len(kind) > 100 or not _is_text(kind) or not _is_number(spent) or not 0 <= spent < _LONGEST_S:
            raise WireError("seconds holds something other than kinds of work and their seconds")


def _is_plain(value: Any) -> bool:
    """A number within 64 bits, which may be infinite, or a text to show."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT and _is_text(value)
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _is_number(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 2**63)


def _is_text(value: str) -> bool:
    """Whether it can be written down: JSON may hold halves of characters."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
