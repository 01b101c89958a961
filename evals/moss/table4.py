"""Table 4: transmission until convergence (claim M6)."""

from evals.moss.arms import TRANSMISSION, all_suites, fewest
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import columns
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment(
    "table4",
    "Table 4: transmission until convergence",
    all_suites(),
    (*columns("MB"), "traffic MB", "network MB / round"),
    plots.bars(*columns("MB")),
    note="MB of a type is what one of its devices sends, times the rounds until the type's accuracy settles. This is "
    "the paper's accounting. It charges every system that prunes, LotteryFL and FedSkel too, for Moss's model of "
    "the type. The mean is over types. `traffic MB` counts both directions of all devices until then, and what "
    "really travels of pruned models. A system that does not learn settles at once: see `fig4`.",
    rows=by_type,
    orders=fewest(TRANSMISSION),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
