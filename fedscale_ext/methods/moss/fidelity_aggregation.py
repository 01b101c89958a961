"""FILE: proxies averaged by how well they answer like the models that they stand for (Moss, section 3.5, Eqs. 9-10).

Eq. 9's cosine "of d_public" is the mean over the samples of the cosines of their logits. The alpha that the text
mentions before Eq. 10 appears in no equation.
"""

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn import functional

from fedscale_ext.core.types import State
from fedscale_ext.submodels import count_mean


def fidelity(logits: Tensor, of_proxy: Tensor) -> float:
    """Fid in [0, 1] of a model and its proxy (Eq. 9).

    Args:
        logits: The model's logits [N, classes], finite.
        of_proxy: The proxy's logits [N, classes], finite.

    Returns:
        The mean cosine, moved to [0, 1].

    """
    cosine = float(functional.cosine_similarity(logits.double(), of_proxy.double(), dim=1).mean())
    return min(max((cosine + 1) / 2, 0.0), 1.0)  # rounding may lead a step over the edge


def shares(weights: Sequence[float]) -> list[float]:
    """The weights of Eq. 10, which sum to one; equal ones if all are zero.

    Args:
        weights: Fidelities, or numbers of samples.

    Returns:
        The share of each proxy.

    Raises:
        FloatingPointError: A weight is not finite: comparisons with NaN would make all shares equal.

    """
    total = sum(weights)
    if not math.isfinite(total):
        raise FloatingPointError(f"proxies cannot be weighed by {list(weights)}")
    return [each / total if total > 0 else 1 / len(weights) for each in weights]


def aggregate(states: Sequence[State], weights: Sequence[float]) -> State:
    """PM^G, the mean of proxies of one architecture by :func:`shares`; BatchNorm's statistics too (Eq. 10)."""
    return count_mean(states[0], [(state, None, share) for state, share in zip(states, shares(weights), strict=True)])
