from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from synthetic_job import LINEAGE, records, summary

from fedscale_ext.report.plots.growth import draw_growth, plot_growth


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
