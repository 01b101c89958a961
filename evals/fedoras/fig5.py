"""Figure 5: supernet training, search and fine-tuning as they went; the jobs of Table 6."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from evals.fedoras.arms import ACCURACY, PERPLEXITY, with_twins
from evals.fedoras.settings import main
from evals.fedoras.tiers import figures_of, results, row, tier_label
from evals.paper.experiment import Experiment, Run
from evals.paper.jobs import summary
from evals.paper.panels import COLORS, grid, legend, save
from fedscale_ext.metrics.job_folder.round_records import read_records

FOUND, AVERAGE, TUNED = "best of the search %", "average path %", "fine-tuned %"
FOUND_TEXT, AVERAGE_TEXT = "best of the search, perplexity", "average path, perplexity"
TUNED_TEXT = "fine-tuned, perplexity"


def by_loss(run: Run) -> bool:
    """Whether the search scored paths by their loss, of which a score is the negative."""
    return bool(summary(run.job)["params"]["score"] == "loss")


def in_units(run: Run, score: float | None) -> float:
    """A score as an accuracy in %, or a perplexity."""
    if score is None:
        return float("nan")
    return float(np.exp(-score)) if by_loss(run) else 100 * score


def summaries(runs: Sequence[Run]) -> list[Run]:
    """A row per tier: the average and the best path of its search by score, and what fine-tuning made of that."""
    rows = []
    for run in runs:
        for tier in results(run)["tiers"]:
            scores = [score for _, score in tier["search"]["scores"] if score is not None]
            text, final = by_loss(run), figures_of(tier)
            average, best, tuned = (AVERAGE_TEXT, FOUND_TEXT, TUNED_TEXT) if text else (AVERAGE, FOUND, TUNED)
            figures = {average: in_units(run, float(np.mean(scores))), best: in_units(run, tier["search"]["score"]),
                       tuned: final[PERPLEXITY if text else ACCURACY]}  # fmt: skip
            rows.append(row(run, tier_label(tier["tier"]), figures))
    return rows


def stages(experiment: Experiment, runs: Sequence[Run], path: Path) -> None:
    """A row of panels per data set: training loss by clients that trained so far, scores in the order in which paths
    were judged, test accuracy by round of fine-tuning; of the first seed."""
    jobs = list({run.data: run for run in reversed(runs)}.values())[::-1]
    figure, rows = grid(experiment, len(jobs), 3, 12)
    for (training, search, tuning), run in zip(rows, jobs, strict=True):
        records, job = read_records(run.job / "metrics.jsonl"), results(run)
        spans = {stage["stage"]: stage["rounds"] for stage in job["stages"]}
        first = records[: spans["supernet training"]]
        training.plot(
            np.cumsum([len(one.participants) for one in first]), [one.train_loss for one in first], "-o", markersize=2
        )
        begin = spans["supernet training"] + spans["search"]
        for tier in job["tiers"]:
            color, name = COLORS[tier["tier"] - 1], f"tier {tier['tier']}"
            scores = [in_units(run, score) for _, score in tier["search"]["scores"]]
            search.plot(np.array(scores), ".", markersize=3, color=color, label=name)
            shown = records[begin - 1 : begin + spans.get("fine-tuning", 0)]
            tested = [(one.round - begin, 100 * one.evaluation.named[f"tier{tier['tier']}"][0])
                      for one in shown if one.evaluation]  # fmt: skip
            tuning.plot(*zip(*tested, strict=True), "-o", markersize=3, color=color, label=name)
        scored = "validation perplexity" if by_loss(run) else "validation accuracy, %"
        for axis, across, up in ((training, "clients that trained", "training loss"),
                                 (search, "paths judged", scored),
                                 (tuning, "rounds of fine-tuning, tier after tier", "test accuracy, %")):  # fmt: skip
            axis.set_xlabel(across, fontsize=8)
            axis.set_ylabel(up, fontsize=8)
        search.set_title(run.data, fontsize=9)
    legend(figure, [axis for row_ in rows for axis in row_])
    save(figure, path)


EXPERIMENT = Experiment(
    "fig5",
    "Figure 5: convergence of the three stages",
    [with_twins(data) for data in ("cifar10-h0.1", "cifar100-h0.1", "speech12", "shakespeare")],
    (AVERAGE, FOUND, TUNED, AVERAGE_TEXT, FOUND_TEXT, TUNED_TEXT),
    stages,
    note="The training loss is the mean over a round's clients and the paths that they drew. Scores are shares of "
    "validation samples, fine-tuned accuracies of test samples.",
    rows=summaries,
)

if __name__ == "__main__":
    raise SystemExit(main(EXPERIMENT))
