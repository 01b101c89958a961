"""Figure 6: federated evaluation: how it ranks paths, and what it costs (claim A7)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evals.fedoras.arms import fedoras
from evals.fedoras.settings import main
from evals.fedoras.tiers import results, row
from evals.paper.experiment import Experiment, Run
from evals.paper.orders import Order
from evals.paper.panels import COLORS, legend, panels, save

TAU, TAU_ABLE, REQUIRED = "Kendall's tau", "tau, own clients'", "asked for"
ROUNDS = 8
_KEYS = {TAU: "tau", TAU_ABLE: "tau_able"}


def rounds_label(number: int) -> str:
    return f"{number} round{'s' if number > 1 else ''} of clients"


def taus(run: Run, column: str = TAU, tier: int | None = None) -> np.ndarray:
    """float64 [generations, rounds]: agreement with the central ranking (of a tier; by the samples of all clients, or
    of those who can judge), NaN where all scores of a generation are the same."""
    judging = [one for one in results(run)["judging"] if tier in (None, one["tier"])]
    table = np.full((len(judging), ROUNDS), np.nan)
    for index, generation in enumerate(judging):
        values = [np.nan if tau is None else tau for tau in generation[_KEYS[column]]]
        table[index] = (values + values[-1:] * ROUNDS)[:ROUNDS]  # all of a tier's clients have judged
    return table


def by_rounds(runs: Sequence[Run]) -> list[Run]:
    """A row per number of rounds, the mean over tiers and generations, then of each tier; and the paper's 0.8."""
    rows = []
    for run in runs:
        for tier in (None, *sorted({one["tier"] for one in results(run)["judging"]})):
            tables = {column: taus(run, column, tier) for column in _KEYS}
            for number in range(1, ROUNDS + 1):
                columns = {name: table[:, number - 1] for name, table in tables.items()}
                figures = {name: float(np.nanmean(tau)) for name, tau in columns.items() if np.isfinite(tau).any()}
                if figures:
                    rows.append(row(run, rounds_label(number) + (f", tier {tier}" if tier else ""), figures))
        rows.append(row(run, REQUIRED, {TAU: 0.8, TAU_ABLE: 0.8}))
    return rows


def costs(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """Agreement by rounds, traffic so far and the size of what is sent, by generation; of the first seed's job on the
    first data set, the mean over seeds of the agreement."""
    jobs = list({run.log_dir: run for run in runs}.values())
    figure, (left, middle, right) = panels(experiment, ("", "", ""))
    for name, style, color in ((TAU, "-o", COLORS[4]), (TAU_ABLE, "--s", COLORS[5])):
        by_number = {number: [run.figures[name] for run in runs
                          if run.arm.label == rounds_label(number) and name in run.figures]
                 for number in range(1, ROUNDS + 1)}  # fmt: skip
        means = {number: np.mean(values) for number, values in by_number.items() if values}
        left.plot(list(means), list(means.values()), style, color=color, label=name)
    left.axhline(0.8, color="#6b7280", linewidth=0.8, linestyle=":")
    judging: list[dict[str, Any]] = results(jobs[0])["judging"]
    for number in dict.fromkeys(one["tier"] for one in judging):
        of_tier, color = [one for one in judging if one["tier"] == number], COLORS[number - 1]
        generations = [one["generation"] for one in of_tier]
        middle.plot(generations, np.cumsum([one["sent_mb"] for one in of_tier]), "-o", markersize=3, color=color,
                    label=f"tier {number}")  # fmt: skip
        right.plot(generations, [one["supernet_mb"] for one in of_tier], "-o", markersize=3, color=color)
    for axis, across, up in ((left, "rounds of clients", TAU), (middle, "generation", "sent so far, MB"),
                             (right, "generation", "supernet that is sent, MB")):  # fmt: skip
        axis.set_xlabel(across)
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_ylabel(up)
    legend(figure, [left, middle])
    save(figure, path)


EXPERIMENT = Experiment(
    "fig6",
    "Figure 6: federated evaluation",
    [fedoras("judged-h0.1", "federated search", evaluation="federated", evaluation_rounds=ROUNDS,
             compare_rankings=True, val_fraction=1.0, finetune_rounds=0)],
    (TAU, TAU_ABLE),
    costs,
    note="Each generation of the search is sent to rounds of clients, who judge what their tier affords. The server "
    "ranks the same paths on the validation samples of all clients, and on those of the clients who can judge "
    "them. Means are over generations, and over tiers where none is named. At small scale 100 clients have ten "
    "validation samples each. So a round of ten clients ranks by a hundred samples, in steps of a point, in which "
    "many paths are equal. The highest tier has 25 clients, so that all have judged after three rounds.",
    rows=by_rounds,
    orders=[Order(TAU, rounds_label(4), REQUIRED)],
)  # fmt: skip

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
