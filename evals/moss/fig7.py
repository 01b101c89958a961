"""Figure 7: Moss without proxy models (claim M8)."""

from evals.moss.arms import (
    ACCURACY,
    ALL_COLUMNS,
    APPLICATIONS,
    ENERGY,
    MOSS,
    ROUNDS,
    SECONDS,
    as_accurate,
    more_accurate,
    moss,
)
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment
from evals.paper.orders import Order

WITHOUT, SERVER = "Moss without PROM", "coordinator ms / round"
# the paper says "roughly equivalent": within the margin that all papers' claims have, read in both directions
SAME = [as_accurate(MOSS, WITHOUT), as_accurate(WITHOUT, MOSS)]
DEARER = [Order(SERVER, WITHOUT, MOSS)]
EXPERIMENT = Experiment(
    "fig7",
    "Figure 7: with and without proxy models",
    [arm for data in APPLICATIONS for arm in (moss(data=data), moss(WITHOUT, data, proxy=False))],
    (*ALL_COLUMNS, SERVER),
    plots.bars(ROUNDS, SECONDS, ENERGY, ACCURACY, SERVER),
    note="Without PROM each type learns from every other one, which makes six transfers for three types. Moss has "
    "four, as the largest type, which has the proxies' architecture, is copied. The server's time was measured "
    "while other jobs may have run; the devices' is modelled and does not hold it.",
    rows=by_type,
    orders=[more_accurate(MOSS, WITHOUT), Order(ROUNDS, WITHOUT, MOSS), *DEARER],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
