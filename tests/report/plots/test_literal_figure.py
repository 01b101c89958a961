"""Pictures show names as they are written, where matplotlib would read dollar signs as formulas."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_job import header, records
from written_job import write_job

from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.report.plots import comparison_plots
from fedscale_ext.report.plots.figure_files import svg
from fedscale_ext.report.plots.job_picture import draw
from fedscale_ext.report.plots.literal_figure import LiteralFigure

NAMES = ["cost $5 to $9", r"p$\foo{$q"]  # the second is no formula


@pytest.mark.parametrize("name", NAMES)
def test_titles_ticks_and_legends_are_literal(name: str):
    figure = LiteralFigure(figsize=(4, 3), layout="constrained")
    axis = figure.subplots()
    axis.plot([0, 1], label=name)
    axis.set_title(name)
    axis.legend()
    axis.set_yticks([0, 1], [name, "b"])
    assert svg(figure).count(f">{name}<") == 3
    figure.savefig(io.BytesIO(), format="png")


@pytest.mark.parametrize("name", NAMES)
def test_a_jobs_picture_names_its_data_literally(name: str):
    head = header()
    drawing = svg(draw({**head, "data": {**head["data"], "name": name}}, records(4, every=2)))
    assert f">fedtrans on {name} (generated data)<" in drawing


def test_legends_have_names_that_begin_with_an_underscore(tmp_path: Path):
    """Which are those of jobs where rows are named after these."""
    jobs = [load_job(write_job(tmp_path / name, job_name=name, method=method, settings={"learning_rate": rate}))
            for name, method, rate in (("_one", "fedavg", 0.1), ("_two", "fedtrans", 0.2))]  # fmt: skip
    arms = [replace(arm, label=f"_{arm.label}") for arm in arms_of(jobs)]
    plots = comparison_plots.plots(arms)
    for name in ("accuracy_rounds", "accuracy_time", "accuracy_macs", "clients_cdf", "devices"):
        assert all(f">{arm.label}<" in svg(plots[name][1]) for arm in arms), name
    named = [replace(one, assignments={"_small": 2, "large": 1}) for one in records(4, every=2)]
    assert ">_small<" in svg(draw(header(), named))


@pytest.mark.parametrize("name", NAMES)
def test_a_comparison_names_its_rows_literally(tmp_path: Path, name: str):
    data = {"name": name, "generated": False, "digest": "d"}
    jobs = [load_job(write_job(tmp_path / "a", data=data)), load_job(write_job(tmp_path / "b"))]
    plots = comparison_plots.plots(arms_of(jobs))
    assert any(f"{name}<" in svg(figure) for _, figure in plots.values())
