"""Figure 9: proxies weighed by their fidelity, or by their devices' samples (claim M7)."""

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, ENERGY, MOSS, ROUNDS, SECONDS, more_accurate, moss
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment
from evals.paper.orders import Order

WITHOUT = "Moss without FILE"
MORE_ROUNDS, LESS_ACCURATE = [Order(ROUNDS, WITHOUT, MOSS)], [more_accurate(MOSS, WITHOUT)]
EXPERIMENT = Experiment(
    "fig9",
    "Figure 9: with and without FILE",
    [arm for data in APPLICATIONS for arm in (moss(data=data), moss(WITHOUT, data, aggregation="fedavg"))],
    ALL_COLUMNS,
    plots.bars(ROUNDS, SECONDS, ENERGY, ACCURACY),
    rows=by_type,
    orders=[*MORE_ROUNDS, *LESS_ACCURATE],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
