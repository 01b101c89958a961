"""Whether a job diverged, by its records."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic_job import evaluation, record

from fedscale_ext.core.failures import diverged
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.divergence import has_diverged, loss_growth

FINITE = replace(record(2), train_loss=2.0, failed={"OSError: no space": 2})
TESTED = evaluation(3, [0.5, 0.5], untested=1)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (replace(FINITE, round=3), False),
        (replace(FINITE, failed={diverged("the loss is not finite from step 1"): 1}), True),
        (replace(FINITE, train_loss=2001.0), True),
        (replace(FINITE, train_loss=1999.0), False),
        (replace(FINITE, evaluation=TESTED), False),
        (replace(FINITE, evaluation=replace(TESTED, loss=np.array([np.inf, 1.0, 0.0]))), True),
        (replace(FINITE, evaluation=replace(TESTED, loss=np.array([1.0, 1.0, np.nan]))), False),  # nobody's loss
        (replace(FINITE, evaluation=evaluation(3, [], untested=2)), False),
    ],
)
def test_a_job_diverged_by_its_failures_its_test_loss_or_its_training_loss(last: RoundRecord, expected: bool) -> None:
    assert has_diverged([FINITE, last]) is expected
    assert loss_growth([FINITE, last]) == ((2.0, 2001.0) if last.train_loss == 2001.0 else None)
