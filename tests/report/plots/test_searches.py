"""The picture of a search: what is judged, the front, and the model that a tier takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_job import write_job

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.report.page.build import build
from fedscale_ext.report.plots import job_plots, searches

SEARCH = {
    "macs": 3e6, "score": 0.7, "path": ["conv1"], "judged": 4, "generations": 1,
    "front": [[1e6, 0.5], [3e6, 0.7]], "scores": [[1e6, 0.5], [2e6, 0.4], [2.5e6, None], [3e6, 0.7]],
}  # fmt: skip
DEAR = {**SEARCH, "macs": 6e6, "score": 0.8, "front": [[6e6, 0.8]], "scores": [[6e6, 0.8]]}


def job_with(folder: Path, tiers: list[dict[str, Any]], **head: Any) -> LoadedJob:
    write_job(folder, method="fedoras", **head)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"results": {"tiers": tiers}}))
    return load_job(folder)


TIERS: list[dict[str, Any]] = [{"tier": 1, "search": SEARCH}, {"tier": 2, "search": DEAR}]


def test_each_tier_has_its_paths_its_front_and_its_model(tmp_path: Path) -> None:
    one, two = searches.tier_searches(job_with(tmp_path / "a", TIERS))
    assert one.judged.tolist() == [[1e6, 0.5], [2e6, 0.4], [3e6, 0.7]]  # without the one that has no score
    assert one.front.tolist() == SEARCH["front"] and one.chosen.tolist() == [3e6, 0.7]
    assert (one.tier, two.tier) == (1, 2) and two.judged.tolist() == [[6e6, 0.8]]


@pytest.mark.parametrize(("score", "sign", "says"), [("accuracy", 1, "accuracy"), ("loss", -1, "loss")])
def test_the_picture_marks_the_chosen_models(tmp_path: Path, score: str, sign: int, says: str) -> None:
    job = job_with(tmp_path / "a", TIERS, params={"score": score})
    (axis,) = searches.drawn(job, searches.tier_searches(job)).axes
    stars = [line for line in axis.get_lines() if line.get_marker() == "*" and len(line.get_xdata())]
    points = [[float(np.ravel(line.get_xdata())[0]), float(np.ravel(line.get_ydata())[0])] for line in stars]
    assert points == [[3.0, sign * 0.7], [6.0, sign * 0.8]]
    fronts = [np.asarray(line.get_xdata()).tolist() for line in axis.get_lines() if line.get_linestyle() == "-"]
    assert fronts == [[1.0, 3.0], [6.0]]
    assert says in axis.get_ylabel() and axis.yaxis_inverted() == (score == "loss")


def test_a_report_shows_it_of_jobs_that_searched(tmp_path: Path) -> None:
    job_with(tmp_path / "found", TIERS)
    job_with(tmp_path / "early", [{"tier": 1, "search": None}])
    page = build([tmp_path / "found", tmp_path / "early"], tmp_path / "out").page
    assert sorted(path.parent.name for path in page.parent.rglob("search.png")) == ["found"]
    assert searches.TITLE in page.read_text(encoding="utf-8")
    plain = load_job(write_job(tmp_path / "plain"))
    assert searches.tier_searches(plain) == [] and "search" not in job_plots.plots(plain)


@pytest.mark.parametrize("wrong", [{"front": [[1.0]]}, {"score": "good"}, {"scores": None}])
def test_a_damaged_summary_is_one_sentence(tmp_path: Path, wrong: dict[str, Any]) -> None:
    job = job_with(tmp_path / "a", [{"tier": 1, "search": {**SEARCH, **wrong}}])
    with pytest.raises(UserError, match=r"is damaged, or of another version: results\.tiers\[0\]\.search"):
        searches.tier_searches(job)
