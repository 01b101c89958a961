"""What a report shows of a job's types of devices: the method's own tables, and the accuracy of each type by round."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_job import write_job

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.report.job.model_order import model_order
from fedscale_ext.report.page.build import build
from fedscale_ext.report.plots import job_plots, panels, type_curves

TYPES: list[dict[str, Any]] = [
    {"type": "large<net>", "clients": 30, "accuracy": 0.5, "curve": [[1, 0.25], [10, 0.5]], "settled_round": 10},
    {"type": "small", "clients": 32, "accuracy": 0.25, "curve": [[1, None], [10, 0.25]], "settled_round": 1},
    {"type": "all", "clients": 62, "accuracy": 0.4, "settled_round": 1},
]


def job_with(folder: Path, results: Any) -> LoadedJob:
    write_job(folder, method="moss")
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"results": results}))
    return load_job(folder)


def test_the_page_has_a_methods_own_tables_and_the_curves_of_its_types(tmp_path: Path) -> None:
    job_with(tmp_path / "typed", {"types": TYPES, "device_classes": [{"class": "fast", "watts": 5.0}]})
    page = build([tmp_path / "typed", write_job(tmp_path / "plain")], tmp_path / "out").page
    text = page.read_text(encoding="utf-8")
    assert text.count("<h4>Types</h4>") == text.count("<h4>Device classes</h4>") == 1
    assert "<th scope=row>large&lt;net&gt;</th><td>30</td>" in text and "<th scope=col>settled round</th>" in text
    assert [path.parent.name for path in page.parent.rglob("types.png")] == ["typed"]
    assert text.count(type_curves.TITLE) >= 1


def test_long_names_break_where_their_words_end(tmp_path: Path) -> None:
    job_with(tmp_path / "typed", {"server": [{"type": "resnet18_half<b>", "fidelity": 0.5}]})
    text = build([tmp_path / "typed"], tmp_path / "out").page.read_text(encoding="utf-8")
    assert "<th scope=row>resnet18_<wbr>half&lt;b&gt;</th>" in text


def test_each_type_has_a_line_of_its_own(tmp_path: Path) -> None:
    nobody = {"type": "nobody", "clients": 0, "curve": [[1, None], [10, None]]}
    job = job_with(tmp_path / "typed", {"types": [*TYPES, nobody]})
    (axis,) = type_curves.drawn(type_curves.curves(job), model_order(job.records)).axes
    lines = {str(line.get_label()): line for line in axis.get_lines()}
    assert list(lines) == ["large<net>", "small"]
    assert lines["large<net>"].get_xydata().tolist() == [[1, 0.25], [10, 0.5]]  # type: ignore[union-attr]
    assert lines["small"].get_xydata().tolist() == [[10, 0.25]]  # type: ignore[union-attr]


def test_types_that_are_models_have_their_colours_in_all_plots(tmp_path: Path) -> None:
    """Also clients' own versions of them; the order of the types is another one than that of the models."""
    curves = {"m2": np.array([[1, 0.2]]), "m1": np.array([[1, 0.1]])}
    (axis,) = type_curves.drawn(curves, ["m1", "m2"]).axes
    colours = {str(line.get_label()): line.get_color() for line in axis.get_lines()}
    order = ["m1", "m2", "m1@own"]
    for key in ("m1", "m2"):
        assert colours[key] == panels.shade_of(key, order)["color"] == panels.shade_of(f"{key}@own", order)["color"]
    assert panels.shade_of("only@own", ["only@own"])["color"] == panels.MODELS[0]


@pytest.mark.parametrize("results", [None, {}, {"types": []}, {"types": TYPES[:1]}, {"types": TYPES[2:]},
                                     {"types": "large"}])  # fmt: skip
def test_no_picture_where_there_are_no_types_to_tell_apart(tmp_path: Path, results: Any) -> None:
    assert "types" not in job_plots.plots(job_with(tmp_path / "a", results))


@pytest.mark.parametrize("wrong", [{"curve": [[1]]}, {"curve": [["1", 0.5]]}, {"type": 3}, {"curve": 0.5}])
def test_a_damaged_summary_is_one_sentence(tmp_path: Path, wrong: dict[str, Any]) -> None:
    job = job_with(tmp_path / "a", {"types": [{**TYPES[0], **wrong}, TYPES[1]]})
    with pytest.raises(UserError, match=r"is damaged, or of another version: results\.types\[0\]"):
        type_curves.curves(job)


def test_results_that_are_none_are_damage(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is damaged, or of another version: results"):
        job_with(tmp_path / "a", ["types"])
