"""Training that diverged: the sentences that tell whoever watches the job."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.failures import TRAINING_DIVERGED
from fedscale_ext.core.types import Evaluation, RoundRecord
from fedscale_ext.metrics.accuracy import accuracy, without_mask
from fedscale_ext.metrics.divergence import loss_growth


def failure_sentence(diverged: int, clients: int, config: JobConfig) -> str:
    """Says that so many of a round's ``clients`` diverged, and what to do."""
    return (
        f"{TRAINING_DIVERGED}: the loss or weights of {diverged} of {clients} clients are not finite; {_advice(config)}"
    )


class DivergenceNotices:
    """Tells once per start of a job that clients diverged, and once that the test loss is not finite.

    Counts are in records.
    """

    def __init__(self, config: JobConfig, notice: Callable[[str], None]) -> None:
        self._config, self._notice = config, notice
        self._training_reported = self._test_reported = False

    def training(self, round: int, diverged: int, clients: int) -> None:
        """Report the ``diverged`` among the round's ``clients``, if there are any."""
        if diverged and not self._training_reported:
            self._training_reported = True
            self._notice(f"round {round}: {failure_sentence(diverged, clients, self._config)}")

    def test(self, evaluation: Evaluation) -> None:
        """Report clients whose test loss is not finite, if there are any."""
        tested = evaluation.count > 0
        diverged = int((tested & ~np.isfinite(evaluation.loss)).sum())
        if diverged and not self._test_reported:
            self._test_reported = True
            self._notice(
                f"round {evaluation.round}: training diverged: the test loss of {diverged} of {int(tested.sum())} "
                f"clients is not finite; {_advice(self._config)}"
            )


def end_notice(records: Sequence[RoundRecord], floor: Mapping[str, Any] | None, config: JobConfig) -> str | None:
    """A sentence about a job that ends with figures that are finite and tell that nothing was learnt; None for others.

    ``floor`` is that of the job's header: the accuracies that clients have without a model.
    """
    if (growth := loss_growth(records)) is not None:
        return f"training diverged: its loss grew from {growth[0]:.3g} to {growth[1]:.3g}; {_advice(config)}"
    tests = (record.evaluation for record in reversed(records) if record.evaluation is not None)
    masked = next(tests, None)
    last = masked and (without_mask(masked) or masked)  # a mask may take away what was learnt
    floors = [(floor or {}).get(name) for name in ("majority", "most_frequent")]
    known = [each["mean"] for each in floors if each and each["mean"] is not None]
    if last is None or len(known) < len(floors):
        return None
    reached, floor_mean = accuracy(last).mean, min(known)
    if not reached < floor_mean or math.isclose(reached, floor_mean, rel_tol=1e-9):  # equal but for rounding
        return None
    return (
        f"accuracy after round {last.round}{'' if last is masked else ' without mask_test'}, "
        f"{reached:.1%}, is below what clients reach without a model, "
        f"{floor_mean:.1%}: training has diverged or was too short"
    )


def _advice(config: JobConfig) -> str:
    clip = config.job.clip_norm
    also = "set clip_norm" if clip is None else f"clip_norm ({clip:g})"
    return f"lower learning_rate ({config.fedscale.learning_rate:g}), or {also}"
