"""Ridge regression on raw inputs in closed form: the linear model beside which systems are judged.

One-hot labels (K classes) are regressed on the centred inputs (D features); the class is the largest output. The
penalty is the one of ``PENALTIES`` that is right most often on a fifth of the training samples, which the model then
trains on too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from fedscale_ext.data.store import DataSet

PENALTIES = tuple(10.0**power for power in range(-3, 3))  # in parts of the features' mean variance, per sample
HELD_OUT = 0.2
_AT_ONCE = 2048  # samples
Blocks = Callable[[np.ndarray], Iterator[tuple[np.ndarray, np.ndarray]]]  # of rows: inputs [n, D], labels [n]


def blocks_of(data: DataSet) -> Blocks:
    """Flattened normalised inputs, float64 [n, D], and labels, int64 [n], of rows of a data set, in their order."""

    def blocks(rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for begin in range(0, len(rows), _AT_ONCE):
            x, y = data.tensors(rows[begin : begin + _AT_ONCE])
            yield x.flatten(1).double().numpy(), y.numpy()

    return blocks


@dataclass(frozen=True)
class Moments:
    """Sums over ``count`` samples: inputs [D], one-hot labels [K], inputs' products [D, D], inputs by labels [D, K]."""

    count: int
    x: np.ndarray
    y: np.ndarray
    xx: np.ndarray
    xy: np.ndarray

    @classmethod
    def of(cls, blocks: Blocks, rows: np.ndarray, num_classes: int) -> "Moments":
        """The sums over these rows, which are not empty."""
        total = None
        for x, labels in blocks(rows):
            y = np.eye(num_classes)[labels]
            part = cls(len(x), x.sum(0), y.sum(0), x.T @ x, x.T @ y)
            total = part if total is None else total + part
        if total is None:
            raise ValueError("there are no training samples")
        return total

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(self.count + other.count, self.x + other.x, self.y + other.y,
                       self.xx + other.xx, self.xy + other.xy)  # fmt: skip

    def __sub__(self, other: "Moments") -> "Moments":
        """Without the samples of ``other``, which are among these."""
        return Moments(self.count - other.count, self.x - other.x, self.y - other.y,
                       self.xx - other.xx, self.xy - other.xy)  # fmt: skip


@dataclass(frozen=True)
class Linear:
    """``weights`` [D, K], ``bias`` [K]."""

    weights: np.ndarray
    bias: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """The class of each row of ``x`` [n, D]: int64 [n]."""
        return np.argmax(x @ self.weights + self.bias, axis=1)


def ridge(sums: Moments, penalty: float) -> Linear:
    """The minimum of the squared error plus ``penalty`` times the features' mean variance times |weights|^2, per
    sample; the bias is not penalised."""
    mean_x, mean_y = sums.x / sums.count, sums.y / sums.count
    covariance = sums.xx / sums.count - np.outer(mean_x, mean_x)
    variance = float(np.trace(covariance)) / len(mean_x)
    covariance.flat[:: len(mean_x) + 1] += penalty * variance or 1.0  # of constant inputs any weights do
    factor = cho_factor(covariance, overwrite_a=True, check_finite=False)
    weights = cho_solve(factor, sums.xy / sums.count - np.outer(mean_x, mean_y), check_finite=False)
    return Linear(weights, mean_y - mean_x @ weights)


def right_of(model: Linear, blocks: Blocks, rows: np.ndarray) -> np.ndarray:
    """bool [rows]: whether the model names the class of each of these samples."""
    return np.concatenate([model.predict(x) == y for x, y in blocks(rows)] or [np.zeros(0, dtype=bool)])


def fitted(
    blocks: Blocks, rows: np.ndarray, num_classes: int, rng: np.random.Generator, sums: Moments | None = None
) -> tuple[Linear, float]:
    """The model of all these training rows, and its penalty; ``rng`` draws the part that chooses it. ``sums`` of the
    rows, where they are known."""
    sums = sums or Moments.of(blocks, rows, num_classes)
    held = np.sort(rng.choice(rows, max(1, round(HELD_OUT * len(rows))), replace=False))
    part = sums - Moments.of(blocks, held, num_classes)
    accuracies = [right_of(ridge(part, penalty), blocks, held).mean() for penalty in PENALTIES]
    penalty = PENALTIES[int(np.argmax(accuracies))]
    return ridge(sums, penalty), penalty
