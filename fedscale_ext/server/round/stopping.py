"""Why a job of any method ends before its last round: its budget is spent, or its accuracy converged.

Both follow from the records of finished rounds, so that a resumed job ends where the uninterrupted one did.
"""

from collections.abc import Sequence

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.convergence import converged_round, mean_accuracies
from fedscale_ext.metrics.scheduled_tests import scheduled


def budget_spent(job: JobKeys, spent_macs: float) -> str | None:
    """Return why ``stop_macs`` ends a job; None where it does not.

    Args:
        job: The job's keys.
        spent_macs: MACs of all clients' training so far.

    """
    if job.stop_macs is None or spent_macs < job.stop_macs:
        return None
    return f"clients' training took {spent_macs:.3g} MACs"


def converged(job: JobKeys, eval_interval: int, history: Sequence[RoundRecord]) -> str | None:
    """Return why ``stop_gain`` ends a job; None where it does not.

    Args:
        job: The job's keys.
        eval_interval: Rounds between two tests. Only scheduled tests count.
        history: The records of all rounds so far.

    """
    if job.stop_gain is None:
        return None
    seen = mean_accuracies(scheduled(history, eval_interval, job.eval_macs))
    if converged_round(seen, job.stop_gain, job.stop_patience, job.stop_unit) is None:
        return None
    return f"accuracy rose by no more than {job.stop_gain:g} over {job.stop_patience} {job.stop_unit}"
