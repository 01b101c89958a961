"""Figure 7: cost to accuracy (claim F4); the runs of Table 2."""

from collections.abc import Sequence
from dataclasses import replace

from evals.fedtrans.arms import FEDTRANS, all_suites
from evals.fedtrans.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment, Run
from evals.paper.jobs import accuracy_by_cost

REACHED, TIMES = "TMACs of FedTrans to there", "times FedTrans's"


def with_cost_to_there(runs: Sequence[Run]) -> list[Run]:
    """Each run with what FedTrans's job of the same seed and data had spent when it first was as accurate as the
    run in the end, and how many times that the run has spent; without both where it never was."""
    curves = {(run.data, run.seed): accuracy_by_cost(run.log_dir) for run in runs
              if run.arm.label == FEDTRANS and run.log_dir}  # fmt: skip
    shown = []
    for run in runs:
        curve = [] if run.arm.label == FEDTRANS else curves.get((run.data, run.seed), [])
        cost = next((macs for macs, reached in curve if reached >= run.figures["accuracy %"]), None)
        more = {} if cost is None else {REACHED: cost, TIMES: run.figures["TMACs"] / cost}
        shown.append(replace(run, figures={**run.figures, **more}))
    return shown


EXPERIMENT = Experiment(
    "fig7",
    "Figure 7: cost to accuracy",
    all_suites(),
    ("accuracy %", "TMACs", REACHED, TIMES),
    plots.curves,
    note="Equal numbers of rounds cost the methods different amounts, and bring them to different accuracies. The last "
    "two columns compare at equal accuracy. They show what FedTrans had spent when a test first found it as "
    "accurate as the row's method is in the end. –: it never was, on one seed or more.",
    rows=with_cost_to_there,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
