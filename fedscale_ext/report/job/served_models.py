"""Accuracy of clients by the model that they are served (exit, level or tier), and whether it was trained by then."""

import numpy as np

from fedscale_ext.report.job.lineage import origin
from fedscale_ext.report.job.loading import LoadedJob
from fedscale_ext.report.job.model_order import model_order
from fedscale_ext.util.quantities import percent

TITLES = ("served model", "clients", "tested", "mean accuracy", "over samples", "worst client")


def served_model_rows(job: LoadedJob) -> list[list[str]]:
    """Rows under :data:`TITLES`, one for each model that clients are served, from the last test.

    Empty where all clients are served the same model, or no client was tested.
    """
    if job.evaluation is None or len(set(job.evaluation.serve)) < 2:
        return []
    serve, count = np.array(job.evaluation.serve), np.asarray(job.evaluation.count)
    rows = []
    for key in model_order(job.records):
        its = serve == key
        values = job.client_accuracy[its & (count > 0)]
        if not its.any():
            continue
        figures = ["–"] * 3
        if len(values):
            over_samples = np.asarray(job.evaluation.correct)[its].sum() / count[its].sum()
            figures = [percent(float(value)) for value in (values.mean(), over_samples, values.min())]
        rows.append([key, f"{its.sum():,}", f"{len(values):,}", *figures])
    return rows


def untrained_note(job: LoadedJob) -> str:
    """Note on models that were tested on clients before anybody had trained them, a sentence each.

    Only models that were born while the job ran count. The note is empty where there was none.
    """
    sentences = []
    for model in job.summary["models"]:
        lineage, key = origin(model), model["key"]
        if not lineage.get("birth") or not lineage.get("parent"):
            continue
        trained = next((record.round for record in job.records if key in record.assignments), job.records[-1].round + 1)
        tests = [record.evaluation for record in job.tested if lineage["birth"] <= record.round < trained]
        served = {test.round: test.serve.count(key) for test in tests if test and key in test.serve}
        if served:
            most = max(served.values())
            sentences.append(
                f"{key} was served before anybody had trained it, with what it inherited from {lineage['parent']}, to "
                f"{most:,} {'client' if most == 1 else 'clients'}{' at most' if len(served) > 1 else ''}: in the "
                f"{'test after round' if len(served) == 1 else 'tests after rounds'} {_listed(list(served))}."
            )
    return " ".join(sentences)


def _listed(rounds: list[int]) -> str:
    """``7``, ``7 and 10``, or the first and the last of more: ``7 to 50``."""
    return f"{rounds[0]} to {rounds[-1]}" if len(rounds) > 2 else " and ".join(map(str, rounds))
