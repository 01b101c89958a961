"""What a reader sees in the pictures: labels apart, an arm in one colour, each name once in a legend."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from evals.fedtrans.arms import all_suites
from evals.fedtrans.settings import PAPER
from evals.paper import output, plots
from evals.paper.engine import planned
from evals.paper.experiment import Arm, Experiment, Run
from fedscale_ext.core.errors import UserError

EXPERIMENT = Experiment("try", "Methods on four data sets", all_suites())
NOWHERE = Path("nowhere")


def runs(seed: int) -> list[Run]:
    """Table 2's at small scale, with made-up figures."""
    pairs = planned(PAPER, EXPERIMENT, "small", None)
    figures = [{"accuracy %": 50.0 + n, "TMACs": 0.03 * (1 + n), "MACs of largest": 3e7} for n in range(len(pairs))]
    return [Run(arm, data, seed, NOWHERE, values) for (arm, data), values in zip(pairs, figures, strict=True)]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures instead of files."""
    figures: list[Figure] = []
    monkeypatch.setattr(plots, "save", lambda figure, path: figures.append(figure))
    return figures


def boxes_of_labels(figure: Figure, number: int) -> list[Bbox]:
    """Where the x labels of a panel are."""
    figure.canvas.draw()
    axis: Any = figure.axes[number]
    low, high = axis.get_xlim()
    shown = [label for label in axis.get_xticklabels(which="both") if low <= label.get_position()[0] <= high]
    return [label.get_window_extent() for label in shown if label.get_text()]


def test_an_arm_has_one_colour_on_all_data_sets(drawn: list[Figure]) -> None:
    plots.bars("accuracy %", "TMACs")(EXPERIMENT, [*runs(1), *runs(2)], Path("a.png"))
    (figure,) = drawn
    colours = [[bar.get_facecolor() for bar in axis.patches] for axis in figure.axes]
    assert len(figure.axes) == 8 and len(set(colours[0])) == 8 and all(row == colours[0] for row in colours)
    assert [axis.get_title() for axis in figure.axes[::2]] == ["cifar10-h0.5", "chars74k", "speech", "har"]
    assert figure.axes[0].get_ylabel() == "mean client accuracy, %"


def test_every_bar_has_a_name_where_data_sets_have_different_ones(drawn: list[Figure]) -> None:
    figures = {"accuracy %": 1.0}
    some = [Run(Arm(label), data, 1, NOWHERE, figures) for label, data in (("a", "x"), ("b", "x"), ("a", "y"))]
    plots.bars("accuracy %")(EXPERIMENT, some, Path("a.png"))
    names = [[label.get_text() for label in axis.get_xticklabels()] for axis in drawn[0].axes]
    assert names == [["a", "b"], ["a"]]


@pytest.mark.parametrize("plot", [plots.curves, plots.by_round])
def test_a_legends_colours_are_those_of_all_panels(
    plot: plots.Plot, drawn: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("accuracy_by_cost", "global_accuracies"):
        monkeypatch.setattr(plots, name, lambda job: [(1, 0.1), (2, 0.2)])
    pairs = (("a", "x"), ("b", "x"), ("c", "x"), ("b", "y"), ("c", "y"))
    plot(EXPERIMENT, [Run(Arm(label), data, 1, NOWHERE) for label, data in pairs], Path("a.png"))
    (key,) = drawn[0].legends
    named = {text.get_text(): line.get_color() for text, line in zip(key.get_texts(), key.get_lines(), strict=True)}
    shown = [(str(line.get_label()), line.get_color()) for axis in drawn[0].axes for line in axis.lines]
    assert len(shown) == len(pairs) and all(named[label] == color for label, color in shown)


@pytest.mark.parametrize("high", [0.04, 0.08, 0.3, 5.0, 4000.0])
def test_labels_of_a_logarithmic_axis_do_not_overlap(drawn: list[Figure], high: float) -> None:
    two = [Run(Arm("a", x=x), "har", 1, NOWHERE, {"TMACs": x, "accuracy %": 1.0}) for x in (0.012, high)]
    plots.sweep("x", log=True)(EXPERIMENT, two, Path("a.png"))
    boxes = sorted(boxes_of_labels(drawn[0], 0), key=lambda box: box.x0)
    assert len(boxes) >= 2
    assert all(one.x1 < after.x0 for one, after in pairwise(boxes))


def test_swept_values_are_the_labels_of_a_linear_axis(drawn: list[Figure]) -> None:
    swept = [Run(Arm(f"{x}", x=x), "har", 1, NOWHERE, {"TMACs": 1.0, "accuracy %": 1.0}) for x in (1, 2, 3, 0.5)]
    plots.sweep("degree")(EXPERIMENT, swept, Path("a.png"))
    assert [label.get_text() for label in drawn[0].axes[0].get_xticklabels()] == ["0.5", "1", "2", "3"]


def test_a_legend_names_each_arm_once_and_marks_tell_arms_apart(drawn: list[Figure]) -> None:
    many = [Run(Arm(f"arm {n}"), "har", 1, NOWHERE, {"TMACs": 1.0 + n, "accuracy %": 1.0}) for n in range(12)]
    plots.scatter("TMACs")(EXPERIMENT, [*many, *many], Path("a.png"))
    (legend,) = drawn[0].legends
    assert [text.get_text() for text in legend.get_texts()] == [f"arm {n}" for n in range(12)]
    assert len({(line.get_color(), line.get_marker()) for line in drawn[0].axes[0].lines}) == 12


def test_data_sets_without_a_job_are_named_below_the_title(drawn: list[Figure]) -> None:
    bars = Experiment("try", "Methods on four data sets", all_suites(), plot=plots.bars("accuracy %"))
    all_runs = runs(1)
    datas = [run.data for run in all_runs]
    output.draw(bars, all_runs, datas, Path("a.png"))
    output.draw(bars, [run for run in all_runs if run.data in ("speech", "har")], datas, Path("a.png"))
    assert drawn[0].get_suptitle() == "Methods on four data sets"
    assert drawn[1].get_suptitle() == "Methods on four data sets\nno job yet on cifar10-h0.5, chars74k"
    assert [axis.get_title() for axis in drawn[1].axes] == ["speech", "har"]


@pytest.mark.parametrize("plot", [plots.boxes, plots.curves, plots.by_round, plots.best_models])
def test_a_picture_that_needs_jobs_says_so(plot: plots.Plot) -> None:
    recorded = [replace(run, log_dir=None) for run in runs(1)]
    with pytest.raises(UserError, match=r"has recorded figures alone.*run the script with --plot FILE"):
        plot(EXPERIMENT, recorded, Path("a.png"))


def test_macs_are_shown_in_millions(drawn: list[Figure]) -> None:
    plots.scatter("MACs of largest")(EXPERIMENT, runs(1), Path("a.png"))
    assert len(drawn[0].axes) == 4 and drawn[0].axes[0].lines[0].get_xdata()[0] == pytest.approx(30)
    assert drawn[0].axes[0].get_xlabel() == "forward pass of a sample, MMACs"
