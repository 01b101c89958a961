"""Figure 11b: share of the devices that take part (claim M12)."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, MOSS, ROUNDS, more_accurate
from evals.moss.rows import by_type
from evals.moss.settings import THIRD, TWO_THIRDS, main
from evals.paper import plots
from evals.paper.experiment import Arm, Experiment
from evals.paper.orders import Order

Shares = Mapping[str, tuple[float, Mapping[str, Any]]]
_SHARES: Shares = {"33 %": (33.0, {"num_participants": THIRD}), "67 %": (67.0, {"num_participants": TWO_THIRDS}),
           MOSS: (100.0, {})}  # fmt: skip
_PAPER = {"33 %": {ACCURACY: 75.8, ROUNDS: 13}, "67 %": {ACCURACY: 78.3}, MOSS: {ACCURACY: 79.8, ROUNDS: 8}}


def share_sweep(
    name: str, title: str, axis: str, shares: Shares, paper: Mapping[str, Mapping[str, float]], note: str
) -> Experiment:
    """An experiment on rising shares of something: accuracy is to rise from each to the next, rounds to fall.

    Args:
        name: name of the script.
        title: heading of the results.
        axis: what the picture's axis says.
        shares: by label, the share in % and the keys that set it, lowest first.
        paper: published figures by label.
        note: what a reader has to know.

    """
    return Experiment(
        name,
        title,
        [
            Arm(label, {"method": "moss", **keys}, data, paper[label], x)
            for data in APPLICATIONS
            for label, (x, keys) in shares.items()
        ],
        ALL_COLUMNS,
        plots.sweep(axis, ACCURACY, ROUNDS),
        note=note,
        rows=by_type,
        orders=[*rising(shares), Order(ROUNDS, next(iter(shares)), MOSS)],
    )


def rising(shares: Shares) -> list[Order]:
    """Each share is more accurate than the one below it."""
    return [more_accurate(more, less) for less, more in pairwise(shares)]


BETTER = rising(_SHARES)
EXPERIMENT = share_sweep(
    "fig11b",
    "Figure 11b: share of devices that take part",
    "devices that take part, %",
    _SHARES,
    _PAPER,
    "The row Moss has all devices. The paper's figures are means over the three applications, and its accuracy of "
    "100 % differs from Table 3's. Devices that sit out are tested too.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
