"""The kinds of work that every method has, and those of a method's own."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedscale_ext.tasks.answers.answer_checks import check_seconds
from fedscale_ext.tasks.around_training import AroundTraining
from fedscale_ext.tasks.bn_statistics import BatchNormStatistics
from fedscale_ext.tasks.calibrate import Calibrate
from fedscale_ext.tasks.evaluate import Evaluate
from fedscale_ext.tasks.kind import Kind
from fedscale_ext.tasks.personalise import Personalise
from fedscale_ext.tasks.test_on_all import TestOnAll
from fedscale_ext.tasks.train import Train
from fedscale_ext.transport.units import Unit
from fedscale_ext.transport.wire import Section

COMMON: tuple[Kind, ...] = (
    Train(),
    Evaluate(),
    Calibrate(),
    BatchNormStatistics(),
    Personalise(),
    TestOnAll(),
    AroundTraining(),
)


def kinds_by_event(of_method: Iterable[Kind] = ()) -> dict[str, Kind]:
    """Return the kinds of work, the common ones and those ``of_method``, by the event of their units."""
    return {kind.event: kind for kind in (*COMMON, *of_method)}


def check_answer(
    kinds: Mapping[str, Kind],
    unit: Unit,
    header: Mapping[str, Any],
    sections: Mapping[str, Section],
    test_sizes: np.ndarray,
) -> None:
    """Raise WireError, which names the fault, unless the message can be the answer to ``unit``.

    ``test_sizes``: test samples of each client, int64 [clients].
    """
    check_seconds(header.get("seconds", {}))
    kinds[unit.event].check(unit, header, sections, test_sizes)
