"""Whether an answer to a unit has the form that the aggregator reads, whoever sent it: numbers, lengths and names.

Whether an update is a good one (finite, of the model's shapes) is checked client by client, in ``update_checks.py``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedscale_ext.tasks.answers.auc import AUC, check_auc
from fedscale_ext.tasks.answers.confusion import CLASSES, SECTION, check_confusion
from fedscale_ext.tasks.evaluation_figures import COLUMNS, counted, read_figures
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import Section, WireError

_MOST_TEXT = 2000  # characters of a client's reason to fail
_MOST_KINDS = 100  # of work whose seconds an executor reports
LONGEST_S = 1e9


def check_test_figures(
    unit: Unit, sections: Mapping[str, Section], counts: np.ndarray, names: Sequence[str] = ("figures",)
) -> None:
    """Raise WireError unless each section of ``names`` holds possible figures of a unit's clients.

    ``counts``, int64 [clients], are the test samples of each client. Where the unit asks for confusion matrices or AUC,
    these are sections, too.
    """
    by_class = CLASSES in unit.header
    with_auc = by_class and AUC in unit.header
    expected = [*names, *([SECTION] if by_class else []), *([AUC] if with_auc else [])]
    if sections.keys() != set(expected):
        raise WireError(f"an evaluation's sections are {' and '.join(expected)}")
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
        if by_class:
            confusion = check_confusion(unit.header, sections[SECTION], counts, counted(figures)[0][:, 0])
            if with_auc:
                check_auc(unit.header, sections[AUC], confusion)


def check_missing(unit: Unit, header: Mapping[str, Any]) -> None:
    """Raise WireError unless the answer's ``missing`` lists clients of the unit."""
    missing, clients = header.get("missing"), unit.header["clients"]
    if not isinstance(missing, list) or not set(map(str, missing)) <= set(map(str, clients)):
        raise WireError("missing names other clients than the unit's")


def check_seconds(seconds: Any) -> None:
    """Raise WireError unless ``seconds`` can be an executor's seconds by kind of work."""
    if not isinstance(seconds, dict) or len(seconds) > _MOST_KINDS:
        raise WireError("seconds is not an object of some kinds of work")
    for kind, spent in seconds.items():
        if len(kind) > 100 or not _is_text(kind) or not is_number(spent) or not 0 <= spent < LONGEST_S:
            raise WireError("seconds holds something other than kinds of work and their seconds")


def is_plain(value: Any) -> bool:
    """Whether a value is a number within 64 bits, which may be infinite, or a text to show."""
    if isinstance(value, str):
        return len(value) <= _MOST_TEXT and _is_text(value)
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number within 64 bits."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) < 2**63)


def _is_text(value: str) -> bool:
    """Whether it can be written down: JSON may hold halves of characters."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
