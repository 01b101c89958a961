"""Figure 5: time of devices until convergence, by the virtual clock (claim M5)."""

from evals.moss.arms import SECONDS, all_suites, fewest
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "fig5",
    "Figure 5: time until convergence (modelled)",
    all_suites(),
    (*columns("s"), "round s", "coordinator ms / round"),
    plots.bars(*columns("s")),
    note="The paper measures three devices. Here devices of FedScale's traces compute and send on the virtual clock. "
    "The figure is seconds of a type's mean device until the type's accuracy has settled, without waiting for "
    "others or the server. The server's measured time stands beside (the paper: over 90 % is local training). "
    "Absolute values depend on `reference_macs`; compare ratios.",
    rows=by_type,
    orders=fewest(SECONDS),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
