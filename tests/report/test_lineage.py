from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from synthetic_job import header, models, records

from fedscale_ext.metrics.summary import JobResult, summarise
from fedscale_ext.report.lineage import TITLES, draw_growth, lineage_rows, plot_growth

LINEAGE = {"m0": {"parent": None, "birth": 0, "steps": []},
           "m1": {"parent": "m0", "birth": 33, "steps": ["widen c0", "deepen c1"]}}  # fmt: skip


def summary(lineage: dict[str, Any] = LINEAGE) -> dict[str, Any]:
    return summarise(header(), models(), JobResult(records(), lineage=lineage))


def test_a_row_tells_where_a_model_comes_from_and_what_it_costs_and_serves() -> None:
    small, large = lineage_rows(summary())
    assert len(small) == len(TITLES)
    assert small[:4] == ["m0", "–", "0", "–"]
    assert large[:6] == ["m1", "m0", "33", "widen c0, deepen c1", "24", "24"]
    assert large[-1] == "31 (50.00 %)"


def test_shares_of_an_ensembles_members_are_of_all_clients() -> None:
    job = summary()
    for model in job["models"]:
        model["serves"] = job["clients"]["total"]
    assert [row[-1] for row in lineage_rows(job)] == ["62 (100.00 %)"] * 2


def test_models_of_a_method_without_lineage_are_listed_too() -> None:
    assert [row[:4] for row in lineage_rows(summary({}))] == [["m0", "–", "–", "–"], ["m1", "–", "–", "–"]]


def test_the_picture_shows_models_per_round_and_each_models_life() -> None:
    job = [replace(record, models=1 + (record.round >= 33)) for record in records()]
    above, below = draw_growth(summary(), job).axes
    (line,) = above.get_lines()
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[32] == 1
    assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True))[33] == 2
    assert [tuple(life.get_xdata()) for life in below.get_lines()] == [(0, 100), (33, 100)]
    words = [text.get_text() for text in below.texts]
    assert "m1  widen c0, deepen c1" in words and any("24 parameters, serves 31" in each for each in words)


def test_a_picture_is_written_only_where_models_grew(tmp_path: Path) -> None:
    path = plot_growth(tmp_path, summary(), records())
    assert path == tmp_path / "growth.png"
    with Image.open(path) as image:
        assert image.size == (1500, 1050)
    assert [each.name for each in tmp_path.iterdir()] == ["growth.png"]
    assert plot_growth(tmp_path, summary({}), records()) is None
    assert not list(tmp_path.iterdir())  # an earlier job's picture would mislead
    levels = {"a": {"parent": None, "birth": 0, "steps": ["rate 1"]}, "b": {"parent": "a", "birth": 0, "steps": []}}
    assert plot_growth(tmp_path, summary({"m0": levels["a"], "m1": levels["b"]}), records()) is None


def test_a_model_of_the_last_round_is_seen() -> None:
    late = {**LINEAGE, "m1": {**LINEAGE["m1"], "birth": 100}}
    below = draw_growth(summary(late), records()).axes[1]
    old, new = below.get_lines()
    assert old.get_marker() == "None" and new.get_marker() == "|" and not new.get_clip_on()


@pytest.mark.parametrize("count", [3, 30])
def test_the_picture_grows_with_the_number_of_models(count: int) -> None:
    one = summary()
    one["models"] = [{**one["models"][1], "key": f"m{k}"} for k in range(count)]
    figure = draw_growth(one, records())
    assert figure.get_size_inches()[1] == (7 if count == 3 else 21)
