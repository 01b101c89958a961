import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from fedscale_ext.report.plots import panels
from fedscale_ext.report.plots.comparison_plots import _per_cent, figure_of
from fedscale_ext.report.plots.figure_files import COLOURS, FONT, inline, save, style_variables, svg


@pytest.fixture
def figure():
    figure, axis = figure_of(4, 3)
    panels.prepare(axis, 'A <title> & "more"', "x")
    axis.plot([0, 1], [0, 1], "o", color=panels.MODELS[0])
    axis.plot([0, 1], [1, 0], "o", color=panels.MODELS[1])
    return figure


def test_words_stay_words_and_equal_drawings_are_equal(figure):
    text = svg(figure)
    assert "A &lt;title&gt; &amp;" in text and text == svg(figure)
    assert "<metadata" not in text and "DOCTYPE" not in text
    ElementTree.fromstring(text)


def test_the_font_is_named_once(figure):
    text = svg(figure)
    assert text.count(FONT) == 1 == len(re.findall("font-family", text)) and "font-size" in text


def test_an_svg_has_no_ids_that_nothing_refers_to_and_no_empty_parts(figure):
    text = svg(figure)
    used = re.findall(r'(?:url\(#|href="#)([\w-]+)', text)
    assert set(re.findall(r' id="([^"]+)"', text)) == set(used) and "<g/>" not in text
    assert all(line.startswith("<") for line in text.splitlines())  # a path stands in one line


def test_in_a_page_every_colour_is_the_pages(figure):
    text = inline(svg(figure), "plot", "title")
    assert not re.search(r"#[0-9a-f]{6}", text)
    assert {"var(--series-0)", "var(--series-1)", "var(--ink)", "var(--card)"} <= set(
        re.findall(r"var\(--[\w-]+\)", text)
    )
    assert all(f"--{name}:" in style_variables() for name, _ in COLOURS.values())


def test_ids_of_two_drawings_differ_and_lead_where_they_did(figure):
    one, two = (inline(svg(figure), name, "title") for name in ("a", "b"))
    ids = [re.findall(r' id="([^"]+)"', text) for text in (one, two)]
    assert ids[0] and not set(ids[0]) & set(ids[1])
    for text, ids_of_picture in zip((one, two), ids, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([\w-]+)', text)) == set(ids_of_picture)
        assert len(ids_of_picture) == len(set(ids_of_picture))
        root = ElementTree.fromstring(text)
        assert "width" not in root.attrib and root.attrib["viewBox"]


def test_a_plot_is_written_as_svg_and_png(figure, tmp_path: Path):
    save(figure, tmp_path, "plot")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plot.png", "plot.svg"]
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    ElementTree.parse(tmp_path / "plot.svg")


def test_no_two_ticks_of_a_narrow_axis_say_the_same():
    figure, axis = figure_of(4, 3)
    axis.set_ylim(0, 0.021)
    _per_cent(axis)
    figure.canvas.draw()
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert len(set(labels)) == len(labels) > 3 and "0.5%" in labels
