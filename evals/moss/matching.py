"""Figure 8's losses, with the matching loss of Eq. 5 read in other ways. Not in the paper."""

from evals.moss.arms import ALL_COLUMNS, APPLICATIONS, AROUND, TEXT_RATES, more_accurate
from evals.moss.fig8 import ENTROPY, FIRST, LOSSES, SETTLED, with_fidelity
from evals.moss.readings import L2T_PAIRS
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Arm, Experiment

WAYS = {
    "mean over pairs": {"moss.pair_reduce": "mean"},
    "L2T-ww's pairs and weight": L2T_PAIRS,
    "projections by least squares": {"moss.projection_start": "least_squares"},
    "BatchNorm of the public samples": {"moss.bn_statistics": "public"},
    "mean over pairs, BatchNorm of the public samples": {"moss.pair_reduce": "mean", "moss.bn_statistics": "public"},
    "learning rate and momentum of the text": TEXT_RATES,
}
_WITHOUT_PAIRS = ("BatchNorm of the public samples", "learning rate and momentum of the text")


def row(loss: str, way: str) -> str:
    """The row of a loss of figure 8, read in one of the ways."""
    return f"{loss}: {way}"


def _arms(data: str) -> list[Arm]:
    losses = [(loss, {"method": "moss", **{f"moss.{name}": value for name, value in keys.items()}})
           for loss, keys in LOSSES.items()]  # fmt: skip
    read = [Arm(row(loss, way), {**keys, **more}, data) for way, more in WAYS.items() for loss, keys in losses
            if loss != ENTROPY or way in _WITHOUT_PAIRS]  # fmt: skip
    return [*(Arm(loss, keys, data) for loss, keys in losses), *read]


EXPERIMENT = Experiment(
    "matching",
    "Figure 8's losses, the matching read in other ways",
    [arm for data in APPLICATIONS for arm in _arms(data)],
    (*ALL_COLUMNS, *AROUND, FIRST, SETTLED),
    plots.bars(*columns("%")),
    note="Eq. 5 is a sum over all pairs of layers. Cross-entropy alone has no pairs: it has a row where the way "
    "changes something else.",
    rows=with_fidelity,
    orders=[more_accurate(row(loss, way), loss) for way in WAYS for loss in LOSSES if loss != ENTROPY],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
