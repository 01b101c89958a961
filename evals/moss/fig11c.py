"""Figure 11c: share of the public samples that the server uses (claim M12)."""

from evals.moss.arms import ACCURACY, MOSS, ROUNDS
from evals.moss.fig11b import Shares, rising, share_sweep
from evals.moss.settings import main

_SHARES: Shares = {
    "25 %": (25.0, {"public_fraction": 0.25}),
    "50 %": (50.0, {"public_fraction": 0.5}),
    MOSS: (100.0, {}),
}
_PAPER = {"25 %": {ACCURACY: 76.6, ROUNDS: 10}, "50 %": {ACCURACY: 78.9, ROUNDS: 9}, MOSS: {ACCURACY: 79.8, ROUNDS: 8}}
BETTER = rising(_SHARES)
EXPERIMENT = share_sweep(
    "fig11c",
    "Figure 11c: size of the public data",
    "public samples used, %",
    _SHARES,
    _PAPER,
    "The row Moss has all public samples. The paper's figures are means over the three applications. Devices train on "
    "the same samples in all rows: public samples that are not used go to nobody.",
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
