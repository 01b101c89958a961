"""Figure 6: accuracy of individual clients (claim F6); the runs of Table 2."""

from evals.fedtrans.arms import TABLE2_COLUMNS, all_suites
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment

EXPERIMENT = Experiment("fig6", "Figure 6: accuracy of individual clients", all_suites(), TABLE2_COLUMNS, plots.boxes)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
