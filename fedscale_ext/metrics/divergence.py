"""Whether a job's training diverged, as its round records tell."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.failures import is_divergence
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.accuracy import accuracy

_GROWN = 1000.0  # times that a loss grows in a training that diverged and stayed finite
_LEAST_LOSS = 1e-3  # a first loss below this is none to compare with


def loss_growth(records: Sequence[RoundRecord]) -> tuple[float, float] | None:
    """First and last training loss where it grew so much that training diverged; None elsewhere."""
    losses = [record.train_loss for record in records if np.isfinite(record.train_loss)]
    if losses and losses[-1] > _GROWN * max(losses[0], _LEAST_LOSS):
        return losses[0], losses[-1]
    return None


def has_diverged(records: Sequence[RoundRecord]) -> bool:
    """Tell whether a client failed because it diverged, a test loss is not finite, or the training loss exploded."""
    tests = [accuracy(record.evaluation) for record in records if record.evaluation is not None]
    return (
        any(is_divergence(reason) for record in records for reason in record.failed)
        or any(test.tested and not np.isfinite(test.loss) for test in tests)
        or loss_growth(records) is not None
    )
