"""FedTrans's Client Manager (Zhu et al., MLSys 2024, section 4.2): which client trains which model.

Departures from the paper:

* A client's one observed loss is used for every compatible model, weighed by similarity. The printed L^c_k has an index
  k that nobody measures.
* Losses are standardised over the round's participants across all models, with 0 where they do not differ.
* A model is compatible when MAC(M_k) <= T_c as in Algorithm 1. The text says fewer.

Eq 4 has no term for the client: one whose samples are hard lies above the round's mean whatever it trains, and its
utilities fall together. By default they do, as printed; ``utility="client_history"`` standardises a second time, over
the client's own standardised losses so far (:class:`LossHistory`), so that a model is measured by whether it did better
than this client's models usually do.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch

from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import State


def compatible(capacity: np.ndarray, macs: Sequence[float]) -> np.ndarray:
    """bool [clients, models]: MAC(M_k) <= T_c (Algorithm 1, line 7). The first model fits every client."""
    fits = np.asarray(macs, dtype=np.float64)[None, :] <= capacity[:, None]
    fits[:, 0] = True
    return fits


def assignment_probabilities(utilities: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """p^c_k = exp(U^c_k) / sum over compatible k' of exp(U^c_k') (Eq 3), 0 for incompatible models.

    Both arguments are [..., models]; every row has an allowed model.
    """
    masked = np.where(allowed, utilities, -np.inf)
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sample_models(probabilities: np.ndarray, participants: np.ndarray, seed: int, round: int) -> np.ndarray:
    """Sample a model of each participant from Categorical(p^c) (Eq 2), by the client's own stream.

    Args:
        probabilities: p^c of each participant, [participants, models].
        participants: Their numbers, int64 [participants].
        seed: The job's seed.
        round: The round.

    Returns:
        Index of each participant's model, int64 [participants].

    """
    draws = np.array([stream(seed, round, int(client), "assign").random() for client in participants])
    cumulative = np.cumsum(probabilities, axis=1)
    # the last allowed model takes what rounding leaves of the total
    chosen = (draws[:, None] >= cumulative).sum(axis=1)
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    return np.minimum(chosen, last)


def standardised(losses: np.ndarray) -> np.ndarray:
    """(L_c - mean) / standard deviation over the round's participants; zeros where they do not differ."""
    losses = np.asarray(losses, dtype=np.float64)
    if len(losses) < 2:
        return np.zeros_like(losses)
    deviation = losses.std()
    if not deviation > 1e-12 * max(1.0, float(np.abs(losses).max())):
        return np.zeros_like(losses)
    return (losses - losses.mean()) / deviation


class LossHistory:
    """Count, mean and sum of squared deviations of each client's losses, float64 [clients], by Welford's recurrence."""

    def __init__(self, clients: int) -> None:
        self.count, self.mean, self.squares = (np.zeros(clients) for _ in range(3))

    def standardised(self, rows: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """Add a loss of each of these clients, and standardise it over the client's own losses so far.

        Args:
            rows: Numbers of the clients - 1, each once.
            losses: Their losses, [rows].

        Returns:
            (loss - mean) / standard deviation, [rows]; 0 for a client's first loss, and where its losses do not differ.

        """
        self.count[rows] += 1
        difference = losses - self.mean[rows]
        self.mean[rows] += difference / self.count[rows]
        self.squares[rows] += difference * (losses - self.mean[rows])
        deviation = np.sqrt(self.squares[rows] / self.count[rows])
        differ = deviation > 1e-6 * np.maximum(1.0, np.abs(losses))
        return np.divide(losses - self.mean[rows], deviation, out=np.zeros(len(rows)), where=differ)

    def tensors(self) -> State:
        """Return the columns for a checkpoint."""
        return {name: torch.from_numpy(column) for name, column in vars(self).items()}

    def load(self, tensors: State) -> None:
        """Restore what :meth:`tensors` returned."""
        vars(self).update({name: tensor.numpy() for name, tensor in tensors.items()})


def updated_utilities(
    utilities: np.ndarray, allowed: np.ndarray, trained: np.ndarray, losses: np.ndarray, similarity: np.ndarray
) -> np.ndarray:
    """U^c_k <- U^c_k - L_c sim(M_k, M*) for every compatible k of each participant (Eq 4).

    A loss below the average raises the utility.

    Args:
        utilities: [participants, models].
        allowed: Compatible models, bool [participants, models].
        trained: Index of M* of each participant, int64 [participants].
        losses: Standardised losses, [participants].
        similarity: [models, models].

    Returns:
        The new utilities [participants, models].

    """
    return utilities - np.where(allowed, losses[:, None] * similarity[:, trained].T, 0.0)


def served(
    utilities: np.ndarray, allowed: np.ndarray, macs: Sequence[float], ties: Literal["largest", "smallest"]
) -> np.ndarray:
    """Index of the model that each client is evaluated on: argmax_k U^c_k among the allowed (section 5.1).

    Utilities are equal for a client that never took part, and where a child copied its parent's.

    Args:
        utilities: [clients, models].
        allowed: bool [clients, models].
        macs: MACs of each model.
        ties: Whether the largest or the smallest of tied models by MACs is served.

    Returns:
        int64 [clients].

    """
    order = np.argsort(macs, kind="stable") if ties == "smallest" else np.argsort(np.negative(macs), kind="stable")
    chosen = np.zeros(len(utilities), dtype=np.int64)
    best = np.full(len(utilities), -np.inf)
    for k in order:  # a column at a time: of tied models the first one in this order stays
        better = allowed[:, k] & (utilities[:, k] > best)
        best[better] = utilities[better, k]
        chosen[better] = k
    return chosen
