"""Accuracy over clients: the mean, its spread, and who is worst off."""

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from fedscale_ext.core.missing_values import ratios
from fedscale_ext.core.types import Evaluation


@dataclass(frozen=True)
class Accuracy:
    """One evaluation in figures; accuracies in [0, 1], NaN where no client was tested.

    ``mean``, quartiles, ``iqr``, ``worst`` and ``best`` give every tested client the same weight (FedTrans section
    5.1). ``sample_weighted``, ``top5`` and ``loss`` give every test sample the same weight, as FedScale does. Quartiles
    interpolate linearly. ``untested`` counts clients without test samples: they are left out of every figure.
    ``worst_client`` is None where no client was tested.
    """

    mean: float
    std: float
    q1: float
    median: float
    q3: float
    iqr: float
    worst: float
    best: float
    worst_client: int | None
    sample_weighted: float
    top5: float
    loss: float
    tested: int
    untested: int


@singledispatch
def client_accuracy(evaluation: Evaluation) -> np.ndarray:
    """float64[clients]: accuracy of each client, NaN for one without test samples."""
    return ratios(np.asarray(evaluation.correct), np.asarray(evaluation.count))


def without_mask(evaluation: Evaluation) -> Evaluation | None:
    """The evaluation as it is without the mask of ``mask_test``, of which only correct answers are known; None where
    models were tested without it."""
    correct = evaluation.unmasked
    if correct is None:
        return None
    unknown = np.full(len(correct), np.nan)
    return Evaluation(evaluation.round, evaluation.serve, correct, unknown, unknown, evaluation.count, {})


@singledispatch
def accuracy(evaluation: Evaluation) -> Accuracy:
    """The figures of one evaluation; those of one that is stored are known."""
    of_client = client_accuracy(evaluation)
    tested = ~np.isnan(of_client)
    untested = int(len(tested) - tested.sum())
    if not tested.any():
        nan = float("nan")
        return Accuracy(nan, nan, nan, nan, nan, nan, nan, nan, None, nan, nan, nan, 0, untested)
    values = of_client[tested]
    q1, median, q3 = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    samples = float(np.sum(evaluation.count))
    return Accuracy(
        mean=float(values.mean()),
        std=float(values.std()),
        q1=q1,
        median=median,
        q3=q3,
        iqr=q3 - q1,
        worst=float(values.min()),
        best=float(values.max()),
        worst_client=int(np.nanargmin(of_client)) + 1,
        sample_weighted=float(np.sum(evaluation.correct)) / samples,
        top5=float(np.sum(evaluation.top5)) / samples,
        # a client without samples may carry any loss
        loss=float(np.sum(np.asarray(evaluation.loss)[tested])) / samples,
        tested=len(values),
        untested=untested,
    )
