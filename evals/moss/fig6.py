"""Figure 6: energy of devices until convergence, modelled (claim M5)."""

from evals.moss.arms import ENERGY, all_suites, fewest
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig6",
    "Figure 6: energy until convergence (modelled)",
    all_suites(),
    columns("J"),
    plots.bars(*columns("J")),
    note="Nothing was measured on a device: power of the device's class by seconds of the virtual clock, and Wi-Fi's "
    "joules (docs/device-types.md). Compare ratios.",
    rows=by_type,
    orders=fewest(ENERGY),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
