"""When a job of any method tests its clients, and why it ends before its last round: its budget is spent, or its
accuracy converged.

All follow from the records of finished rounds, so that a resumed job ends where the uninterrupted one did.
"""

from collections.abc import Sequence

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.convergence import converged_round, mean_accuracies


def budget_spent(job: JobKeys, spent_macs: float) -> str | None:
    """Return why ``stop_macs`` ends a job; None where it does not.

    Args:
        job: The job's keys.
        spent_macs: MACs of all clients' training so far.

    """
    if job.stop_macs is None or spent_macs < job.stop_macs:
        return None
    return f"clients' training took {spent_macs:.3g} MACs"


def converged(job: JobKeys, history: Sequence[RoundRecord]) -> str | None:
    """Return why ``stop_gain`` ends a job; None where it does not.

    Args:
        job: The job's keys.
        history: The records of all rounds so far.

    """
    if job.stop_gain is None:
        return None
    if converged_round(mean_accuracies(history), job.stop_gain, job.stop_patience, job.stop_unit) is None:
        return None
    return f"accuracy rose by no more than {job.stop_gain:g} over {job.stop_patience} {job.stop_unit}"


def evaluation_is_due(eval_interval: int, eval_macs: float | None, record: RoundRecord, spent_macs: float) -> bool:
    """Return whether ``eval_interval`` or ``eval_macs`` asks for a test of all clients after a round.

    Args:
        eval_interval: Rounds between two tests; the first round has one.
        eval_macs: MACs of all clients' training between two tests, if any.
        record: The round's record.
        spent_macs: MACs of all clients' training before the round.

    """
    if record.round == 1 or record.round % eval_interval == 0:
        return True
    return eval_macs is not None and (spent_macs + record.training_macs) // eval_macs > spent_macs // eval_macs
