"""Figure 8: WIRE with other losses and deeper meta-networks (claim M9)."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from evals.moss.arms import ACCURACY, ALL_COLUMNS, APPLICATIONS, ENERGY, MOSS, ROUNDS, SECONDS, more_accurate, moss
from evals.moss.rows import by_type
from evals.moss.settings import main
from evals.paper import plots
from evals.paper.device_types import internals
from evals.paper.experiment import Experiment, Run

TWO, LOCATION, ENTROPY, SQUARES = "Moss, two layers", "location only", "cross-entropy only", "cross-entropy + MSE"
FIRST, SETTLED = "fidelity, first round", "fidelity, settled"
LOSSES: dict[str, dict[str, Any]] = {
    MOSS: {},
    TWO: {"meta_layers": 2},
    LOCATION: {"wire": "loc"},
    ENTROPY: {"wire": "ce"},
    SQUARES: {"wire": "ce+mse"},
}


def with_fidelity(runs: Sequence[Run]) -> list[Run]:
    """Each run by type, with the mean fidelity of its proxies, but for those that are copies, at both times; without it
    where no transfer to a proxy came to an end in that round."""
    shown = []
    for run in by_type(runs):
        lines = {line["round"]: _of_moved(line) for line in internals(run.job)}
        rounds = {FIRST: min(lines), SETTLED: min(max(1, round(run.figures[ROUNDS])), max(lines))}
        fidelities = {name: fmean(lines[number]) for name, number in rounds.items() if lines.get(number)}
        shown.append(replace(run, figures={**run.figures, **fidelities}))
    return shown


def _of_moved(line: dict[str, Any]) -> list[float]:
    """Fidelities of a round; none where every transfer diverged, or nobody took part."""
    moved = {name.partition(".")[2] for name in line.get("transfers", {}) if name.startswith("forward.")}
    return [value for key, value in line.get("fidelity", {}).items() if key in moved]


EXPERIMENT = Experiment(
    "fig8",
    "Figure 8: what WIRE's loss is made of",
    [moss(label, data, **own) for data in APPLICATIONS for label, own in LOSSES.items()],
    (*ALL_COLUMNS, FIRST, SETTLED, "coordinator ms / round"),
    plots.bars(ROUNDS, SECONDS, ENERGY, ACCURACY, FIRST, SETTLED),
    note="Fidelity (Eq. 9) of the proxies that learn from another architecture, in the first round and in that of the "
    "types' mean convergence. –: all of these transfers diverged, on one seed or more. Cross-entropy judges the "
    "meta-networks of location only, too.",
    rows=with_fidelity,
    orders=[more_accurate(MOSS, label) for label in LOSSES if label != MOSS],
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
