"""How clients fare by the model that they are served: by exit, level or tier."""

import numpy as np

from fedscale_ext.report.loading import LoadedJob
from fedscale_ext.report.panels import model_order
from fedscale_ext.report.tables import percent

TITLES = ("served model", "clients", "tested", "mean accuracy", "over samples", "worst client")


def served_rows(job: LoadedJob) -> list[list[str]]:
    """A row under :data:`TITLES` for each model that clients are served, from the last test; none where all are served
    the same, or nobody was tested."""
    if job.evaluation is None or len(set(job.evaluation.serve)) < 2:
        return []
    serve, count = np.array(job.evaluation.serve), np.asarray(job.evaluation.count)
    rows = []
    for key in model_order(job.records):
        its = serve == key
        values = job.client_accuracy[its & (count > 0)]
        if not its.any():
            continue
        told = ["–"] * 3
        if len(values):
            over_samples = np.asarray(job.evaluation.correct)[its].sum() / count[its].sum()
            told = [percent(float(value)) for value in (values.mean(), over_samples, values.min())]
        rows.append([key, f"{its.sum():,}", f"{len(values):,}", *told])
    return rows
