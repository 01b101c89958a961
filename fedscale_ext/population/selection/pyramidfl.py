"""PyramidFL's dropout ratios and local passes of clients (Li et al., MobiCom 2022; its public code's values)."""

import numpy as np

_MAX_FACTOR = 10  # extra passes, in units of the client's passes without PyramidFL
_EPOCHS = 5  # largest number of passes over a client's samples, unless it makes more without PyramidFL


def dropout_ratios(utility: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the share of its update that each client leaves out, linear in its rank by utility.

    Args:
        utility: float64 [clients]; NaN (not known yet) counts as the mean. Equal values share the better rank.
        low: Share of the best client.
        high: Share of the worst client.

    Returns:
        float64 [clients].

    """
    known = np.isfinite(utility)
    filled = np.where(known, utility, utility[known].mean() if known.any() else 0.0)
    rank = np.searchsorted(np.sort(-filled), -filled, side="left")
    return low + (high - low) * rank / max(1, len(utility) - 1)


def lengthened(passes: int, per_epoch: int, slack_s: float, computation_s: float, beta: float) -> int:
    """Return the number of passes with which a client fills its waiting time.

    At most ten times as many passes are added, and not beyond five epochs.

    Args:
        passes: Passes (steps, or epochs) that it would make.
        per_epoch: Passes of an epoch.
        slack_s: Seconds that it would wait for the slowest client.
        computation_s: Seconds of computation of its passes.
        beta: Share of the waiting time to use.

    """
    if computation_s <= 0:
        return passes
    fitting = beta * int(slack_s * passes / computation_s)
    return max(passes, min(passes + int(min(_MAX_FACTOR * passes, fitting)), _EPOCHS * per_epoch))
