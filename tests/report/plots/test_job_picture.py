from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from synthetic_job import evaluation, header, record, records

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.accuracy import accuracy
from fedscale_ext.metrics.job_folder.recorder import Recorder
from fedscale_ext.report.plots.comparison_plots import WIDTH, figure_of
from fedscale_ext.report.plots.job_picture import draw, plot_job
from fedscale_ext.report.plots.panels import _running_mean, participants


def title(generated: bool) -> str:
    return draw(header(generated=generated), records(4, every=2)).get_suptitle()


def test_a_job_becomes_a_png(tmp_path: Path):
    job = Recorder(tmp_path, header=header(), internals=False)
    for item in records(90, every=10):
        job.round(item)
    path = plot_job(tmp_path)
    assert path == tmp_path / "plot.png"
    with Image.open(path) as image:
        assert image.size == (2100, 1200)
        pixels = np.asarray(image.convert("RGB"))
    for column in range(3):  # no panel is empty
        for row in range(2):
            panel = pixels[600 * row : 600 * (row + 1), 700 * column : 700 * (column + 1)]
            assert len(np.unique(panel.reshape(-1, 3), axis=0)) > 20
    assert not list(tmp_path.glob(".*"))


def test_the_title_says_whether_data_are_generated():
    assert title(True) == "fedtrans on femnist (generated data)"
    assert title(False) == "fedtrans on femnist (real data)"


def test_lines_show_the_records():
    job = records(30, every=10)
    figure = draw(header(), job)
    by_round, by_time, by_macs = figure.axes[:3]
    mean = [accuracy(job[n - 1].evaluation).mean for n in (1, 10, 20, 30)]
    for axis, x in (
        (by_round, [1, 10, 20, 30]),
        (by_time, [61.7 * n / 60 for n in (1, 10, 20, 30)]),
        (by_macs, [3e9 * n for n in (1, 10, 20, 30)]),
    ):
        np.testing.assert_allclose(axis.lines[0].get_xdata(), x)
        np.testing.assert_allclose(axis.lines[0].get_ydata(), mean)
    assert by_time.get_xlabel() == "virtual time (min)"


@pytest.mark.parametrize("count", [2, 3, 9, 15])
@pytest.mark.parametrize("long", [0, 5, 40])
def test_the_legend_of_long_names_stays_within_its_panel(count: int, long: int):
    names = {f"nets:Net(width={number:0{long}}, depth={number}, hidden={4 + number})": 2 for number in range(count)}
    figure, axis = figure_of(WIDTH, 3.1)
    participants(axis, [replace(record(number), assignments=names) for number in range(1, 9)])
    figure.canvas.draw()
    legend, panel = axis.get_legend().get_window_extent(), axis.get_window_extent()
    assert panel.width > 0.8 * figure.bbox.width and panel.x0 <= legend.x0 and legend.x1 <= panel.x1
    assert legend.y0 > axis.transData.transform((0, 2 * count))[1]  # above all bars
    assert (axis.get_legend().get_texts()[-1].get_text() == f"+ {count - 3} more") == (count > 4)


@pytest.mark.parametrize("rounds", [1, 7, 60, 61, 250])
def test_bars_stack_up_to_the_participants(rounds: int):
    job = records(rounds)
    axis = draw(header(), job).axes[4]
    tops: dict[float, float] = {}
    for bar in axis.patches:
        tops[bar.get_x()] = tops.get(bar.get_x(), 0) + bar.get_height()
    assert len(tops) <= 60
    assert list(tops.values()) == pytest.approx([20] * len(tops))
    assert min(tops) == 0.5
    assert max(bar.get_x() + bar.get_width() for bar in axis.patches) == pytest.approx(rounds + 0.5)


def test_jobs_with_nothing_to_show_still_get_a_picture():
    idle = replace(record(1), participants=[], assignments={}, client_durations_s=[], train_loss=float("nan"),
                   virtual_clock_s=0.0, training_macs=0.0)  # fmt: skip
    draw(header(), [idle]).canvas.draw()
    draw(header(), [replace(idle, evaluation=evaluation(1, [], untested=3))]).canvas.draw()


def test_many_models_share_a_short_legend():
    many = [replace(record(n), assignments={f"m{k}": 1 for k in range(30)}) for n in (1, 2)]
    labels = [text.get_text() for text in draw(header(), many).axes[4].get_legend().get_texts()]
    assert len(labels) == 12 and labels[-1] == "+ 19 more"


def test_running_mean_passes_over_nan():
    values = np.array([np.nan, 1.0, np.nan, 3.0, 5.0])
    np.testing.assert_allclose(_running_mean(values, 2), [np.nan, 1, 1, 3, 4])


def test_an_infinite_value_leaves_the_rest_of_the_running_mean():
    np.testing.assert_allclose(_running_mean(np.array([1.0, np.inf, 3.0, 5.0, 7.0]), 2), [1, 1, 3, 4, 6])


def test_a_folder_without_a_job_is_one_sentence(tmp_path: Path):
    with pytest.raises(UserError, match=r"holds no metrics\.jsonl"):
        plot_job(tmp_path)
    Recorder(tmp_path, header=header(), internals=False).round(record(1))
    (tmp_path / "header.json").write_text("{")
    with pytest.raises(UserError, match=r"header\.json is missing or damaged"):
        plot_job(tmp_path)
