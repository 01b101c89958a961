"""Answers of units that test some clients each and may miss some of these."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fedscale_ext.tasks.kind import Dispatcher
from fedscale_ext.transport.units import Dropped, Unit


def answers_to_tests(
    dispatcher: Dispatcher, round: int, units: Sequence[Unit], test: str
) -> Iterator[tuple[Unit, Any, list[int], np.ndarray]]:
    """Run units and go through their answers; a notice names the clients of dropped ones.

    Args:
        dispatcher: runs the units.
        round: the round, for notices.
        units: units with ``clients``, whose answers name those that are ``missing``.
        test: what was done with clients, as in "10 clients are not personalised".

    Yields:
        A unit, the sections of its answer, the tested clients' indices in the unit, and their ids - 1, int64 [tested].

    """
    for unit, answer in zip(units, dispatcher.answers(units), strict=True):
        clients = unit.header["clients"]
        if isinstance(answer, Dropped):
            dispatcher.job.notice(f"round {round}: {len(clients)} clients are not {test}: {answer.reason}")
            continue
        header, sections = answer
        missing = set(header["missing"])
        tested = [index for index, client in enumerate(clients) if client not in missing]
        yield unit, sections, tested, np.array(clients)[tested] - 1


def report_untested(dispatcher: Dispatcher, round: int, counts: np.ndarray, test: str) -> None:
    """Report how many clients with test samples were not tested.

    Args:
        dispatcher: of the job.
        round: the round, for the notice.
        counts: number of samples that each client was tested on, int64 [clients].
        test: what could not be done with them, as in "10 clients could not be personalised".

    """
    if missing := int((counts[dispatcher.job.task.test_sizes > 0] == 0).sum()):
        dispatcher.job.notice(f"round {round}: {missing} clients could not be {test}; the executors' log says why")
