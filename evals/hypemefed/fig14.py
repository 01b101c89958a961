"""Figure 14: errors of generated weights in a network with ten exits, by depth."""

from collections.abc import Sequence
from dataclasses import replace

from evals.hypemefed.arms import HYPEMEFED
from evals.hypemefed.errors import with_errors
from evals.hypemefed.fig13 import ten_exits
from evals.hypemefed.networks import last_layer_errors
from evals.hypemefed.settings import main
from evals.paper import plots
from evals.paper.experiment import Experiment, Run

_SHOWN = {"normalised MAE": "generated", "normalised MAE of old": "layer of the round's start",
          "normalised MAE of random": "trained entries in random order"}  # fmt: skip
_BLOCK = "block"
_BLOCKS = {f"{_BLOCK} {number}": str(number) for number in range(1, 11)}


def by_depth(runs: Sequence[Run]) -> list[Run]:
    """A row for each guess of the weights, with a figure per block; and one for the last block by what it was generated
    from."""
    rows = []
    for run in with_errors(runs):
        for title, label in _SHOWN.items():
            figures = {f"{_BLOCK} {n}": run.figures[name] for n in range(2, 11)
                       if (name := f"{title}, block {n}") in run.figures}  # fmt: skip
            rows.append(replace(run, arm=replace(run.arm, label=label, paper={}), figures=figures))
        last = {f"{_BLOCK} {start}": error for start, error in last_layer_errors(run.job).items()}
        rows.append(
            replace(run, arm=replace(run.arm, label="last block, generated from this one", paper={}), figures=last)
        )
    return rows


EXPERIMENT = Experiment(
    "fig14",
    "Figure 14: errors of generated weights with ten exits",
    [arm for arm in ten_exits() if arm.label == HYPEMEFED],
    list(_BLOCKS),
    plots.lines("MAE / mean size of trained weights", "block", _BLOCKS),
    note="(a) Mean absolute error by generated block, as a share of the trained weights' mean size, over the last "
    "quarter of the rounds. (b) The same for the last block at the end of the job, by the block of the final model "
    "that generation began from.",
    rows=by_depth,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
