from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic_job import evaluation
from written_job import CLIENTS, write_job

from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.plots import comparison_plots, job_plots, panels
from fedscale_ext.report.plots.devices import DeviceClasses
from fedscale_ext.report.plots.growth import draw_growth
from fedscale_ext.report.plots.job_picture import draw


@pytest.mark.parametrize("keys", [("exit3", "exit1", "exit2"), tuple(f"m{number}" for number in range(11, 0, -1))])
def test_a_model_has_the_same_colour_in_all_pictures_of_a_job(tmp_path: Path, keys: tuple[str, ...]):
    job = load_job(write_job(tmp_path / "job"))
    records = [replace(one, assignments=dict.fromkeys(keys, 1), evaluation=None) for one in job.records]
    serve = tuple(keys[client % len(keys)] for client in range(CLIENTS))
    records[-1] = replace(records[-1], evaluation=replace(evaluation(20, [0.5] * CLIENTS), serve=serve))
    model = job.summary["models"][0]
    models = [{**model, "key": key, "lineage": {"parent": None, "birth": birth, "steps": []}}
              for birth, key in enumerate(keys)]  # fmt: skip
    job = replace(job, records=records, summary={**job.summary, "models": models})
    pictures = {name: figure.axes[0] for name, (_, figure) in job_plots.plots(job).items()}
    pictures["plot"] = draw(job.header, records).axes[4]
    colour = {}
    for name in ("plot", "participants", "assignment"):
        handles, labels = pictures[name].get_legend_handles_labels()
        colour[name] = {label: handle.patches[0].get_facecolor() for handle, label in zip(handles, labels, strict=True)}
        assert labels == sorted(keys, key=lambda key: int("".join(filter(str.isdigit, key))))
    assert colour["plot"] == colour["participants"] == colour["assignment"]
    lives = draw_growth(job.summary, records).axes[1]
    for line, key in zip(lives.lines, keys, strict=True):
        assert line.get_color() == panels.shade(labels.index(key))["color"]


def test_marks_stay_below_the_upper_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arms = arms_of([load_job(write_job(tmp_path / "job"))])
    classes = DeviceClasses(["a", "b", "c", "d"], [np.array([0.9, 0.9001, 0.9, 0.9])])
    monkeypatch.setattr(comparison_plots, "device_classes", lambda arms: classes)
    axis = comparison_plots.plots(arms)["devices"][1].axes[0]
    low, high = axis.get_ylim()
    assert low == 0 and high > 0.9001 * 1.05


@pytest.mark.parametrize(("finished", "end"), [(True, 30), (False, 20)])
def test_seeds_that_still_run_have_a_mean_up_to_the_first_ones_end(tmp_path: Path, finished: bool, end: int):
    jobs = [load_job(write_job(tmp_path / str(seed), seed=seed, rounds=rounds, finished=finished, method="fedavg",
                               settings={"rounds": 60})) for seed, rounds in enumerate((20, 30))]  # fmt: skip
    (line,) = comparison_plots.plots(arms_of(jobs))["accuracy_rounds"][1].axes[0].lines
    assert list(line.get_xdata())[-1] == end


def test_what_an_unfinished_job_lacks_is_said_in_its_row(tmp_path: Path):
    arms = arms_of([load_job(write_job(tmp_path / name, method=name, finished=done))
                    for name, done in (("fedtrans", True), ("fedavg", False))])  # fmt: skip
    drawn = comparison_plots.plots(arms)
    words = [text.get_text() for text in drawn["cost_suite"][1].axes[0].texts]
    assert "not finished: round 20 of 40" in words
    assert "not finished: round 20 of 40" not in [text.get_text() for text in drawn["cost_macs"][1].axes[0].texts]
