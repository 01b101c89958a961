"""A job as its clients are after fine-tuning what they are served (``personalise_epochs``): a row beside the job's."""

from functools import cached_property

import numpy as np

from fedscale_ext.report.loading import LoadedJob


class FineTunedJob(LoadedJob):
    """A job whose accuracy is that after fine-tuning; what fine-tuning cost is not counted, so it has no cost."""

    @cached_property
    def personal(self) -> bool:
        """Each client tuned a copy of its own."""
        return True

    @cached_property
    def client_accuracy(self) -> np.ndarray:
        """float64[clients] after fine-tuning, NaN for a client that was not tested."""
        values = self.summary["accuracy"].get("per_client", ())
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def fine_tuned(job: LoadedJob) -> FineTunedJob | None:
    """The job after fine-tuning; None where its clients did not fine-tune."""
    tuned = job.summary.get("personalised")
    if not tuned or not tuned["tested"]:
        return None
    summary = {**job.summary, "accuracy": {**tuned, "named": {}}, "personalised": None, "on_all": None}
    return FineTunedJob(job.folder, job.header, {**summary, "cost": {}, "time": {}}, job.records, job.finished)
