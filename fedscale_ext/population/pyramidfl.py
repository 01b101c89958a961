"""PyramidFL's choices for clients that are in a round (Li et al., MobiCom 2022; figures of its public code)."""

import numpy as np

_MAX_FACTOR = 10  # extra passes, in what a client trains without
_EPOCHS = 5  # most passes over a client's samples, unless it trains more without


def dropout_ratios(utility: np.ndarray, low: float, high: float) -> np.ndarray:
    """Share of its update that each client leaves out: from ``low`` for the best to ``high`` for the worst, linear in
    their ranks by ``utility`` float64 [clients]; equal ones share the better rank. NaN (not known yet): as the mean."""
    known = np.isfinite(utility)
    filled = np.where(known, utility, utility[known].mean() if known.any() else 0.0)
    rank = np.searchsorted(np.sort(-filled), -filled, side="left")
    return low + (high - low) * rank / max(1, len(utility) - 1)


def lengthened(passes: int, per_epoch: int, slack_s: float, computation_s: float, beta: float) -> int:
    """How many passes (steps, or epochs) a client trains that would train ``passes`` in ``computation_s`` and then
    wait ``slack_s`` for the slowest: as many more as fit, times ``beta``, tenfold at most, and no more than five
    epochs of ``per_epoch`` passes."""
    if computation_s <= 0:
        return passes
    fitting = beta * int(slack_s * passes / computation_s)
    return max(passes, min(passes + int(min(_MAX_FACTOR * passes, fitting)), _EPOCHS * per_epoch))
