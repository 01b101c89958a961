"""Answers of units that test some clients each and may miss some of these."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.types import Evaluation
from fedscale_ext.tasks.evaluation_figures import COLUMNS, counted, read_figures
from fedscale_ext.tasks.kind import Dispatcher
from fedscale_ext.transport.units import Dropped, Unit


def gather_tests(
    dispatcher: Dispatcher,
    round: int,
    units: Sequence[Unit],
    serve: Sequence[str],
    test: str,
    names: Sequence[str] = ("figures",),
) -> list[Evaluation]:
    """Run units that test clients, and gather an evaluation from each section of their answers.

    Notices say how many clients were not tested: because their unit was dropped, or because they failed.

    Args:
        dispatcher: Runs the units.
        round: The round, for the evaluations and notices.
        units: Units with ``clients``, whose answers name those that are ``missing``.
        serve: Key of the model that each client is served.
        test: What is done with clients, as in "10 clients are not personalised".
        names: Names of the sections of figures.

    """
    job, task = dispatcher.job, dispatcher.job.task
    columns = np.zeros((len(names), task.num_clients, len(COLUMNS)))
    unmasked = np.zeros(columns.shape[:2])
    count = np.zeros(task.num_clients, dtype=np.int64)
    for unit, answer in zip(units, dispatcher.answers(units), strict=True):
        clients = unit.header["clients"]
        if isinstance(answer, Dropped):
            job.notice(f"round {round}: {len(clients)} clients are not {test}: {answer.reason}")
            continue
        header, sections = answer
        missing = set(header["missing"])
        tested = [index for index, client in enumerate(clients) if client not in missing]
        rows = np.array(clients)[tested] - 1
        for number, name in enumerate(names):
            columns[number, rows], plain = counted(read_figures(unit.header, sections[name])[tested])
            if plain is not None:
                unmasked[number, rows] = plain
        count[rows] = task.test_sizes[rows]
    if untested := int((count[task.test_sizes > 0] == 0).sum()):
        job.notice(f"round {round}: {untested} clients could not be {test}; the executors' log says why")
    return [
        Evaluation(round, tuple(serve), correct, top5, loss, count, {}, {}, plain if job.masks_tests else None)
        for (correct, top5, loss), plain in zip(columns.swapaxes(1, 2), unmasked, strict=True)
    ]
