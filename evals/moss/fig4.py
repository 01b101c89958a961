"""Figure 4: rounds until accuracies settle (claim M4)."""

from collections.abc import Sequence
from dataclasses import replace

from evals.moss.arms import ACCURACY, GLOBAL, MOSS, ROUNDS, all_suites, fewest
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import UNSETTLED, columns, first_reached, mean_curve
from evals.paper.experiment import Experiment, Run

THERE = "Moss's rounds to there"


def with_rounds_to_there(runs: Sequence[Run]) -> list[Run]:
    """Each run by type, with the round in which Moss's job of the same data and seed was first as accurate as the run
    is late; without it where it never was."""
    curves = {(run.data, run.seed): mean_curve(run.log_dir) for run in runs if run.arm.label == MOSS and run.log_dir}
    shown = []
    for run in by_type(runs):
        first_round = first_reached(curves.get((run.data, run.seed), []), run.figures[ACCURACY] / 100)
        shown.append(run if first_round is None else replace(run, figures={**run.figures, THERE: float(first_round)}))
    return shown


EXPERIMENT = Experiment(
    "fig4",
    "Figure 4: rounds to convergence",
    all_suites(),
    (*columns("rounds"), ACCURACY, GLOBAL, UNSETTLED, THERE),
    plots.bars(*columns("rounds")),
    note="The first round after which a type's accuracy, as a mean of three evaluations, rises half a point at most; "
    "the mean is over types. The paper has no number for this. It favours systems that stop early, however accurate. "
    "So the last column says when Moss was first as accurate as the row's system late in its job. –: it was not, on "
    "one seed or more. A type that settles in the last round could have improved further. The claims leave such "
    "rows out, and those that are no more accurate than local training, which has a row for this.",
    rows=with_rounds_to_there,
    orders=fewest(ROUNDS),
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
