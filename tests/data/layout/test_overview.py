"""Who has how many samples of which class, counted, printed and drawn."""

from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.data.importing.importers import NpzOptions, import_npz
from fedscale_ext.data.layout.overview import Overview, overview
from fedscale_ext.data.store import DataSet, open_data_set
from fedscale_ext.report.plots.data_picture import draw, png

CLIENTS = ["ann"] * 6 + ["bob"] * 4 + ["cem"] * 2
LABELS = ["sun"] * 3 + ["rain"] * 3 + ["rain"] * 4 + ["sun"] * 2


@pytest.fixture
def imported(tmp_path: Path) -> tuple[DataSet, Overview]:
    x = np.arange(12, dtype=np.uint8)[:, None, None] * np.ones((12, 6, 6), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.array(LABELS), client=np.array(CLIENTS))
    import_npz(tmp_path / "a.npz", tmp_path / "out", "weather", NpzOptions(test_fraction=0.5))
    data = open_data_set(tmp_path / "out", "weather")
    return data, overview(data, tmp_path / "out")


def test_samples_are_counted_by_client_and_class(imported: tuple[DataSet, Overview]) -> None:
    data, seen = imported
    assert (list(seen.clients), list(seen.classes)) == (["ann", "bob", "cem"], ["rain", "sun"])
    whole = [[3, 3], [4, 0], [0, 2]]
    assert (seen.train + seen.test).tolist() == whole and seen.test.sum() == len(data.test.rows) > 0
    assert seen.labels_per_client.tolist() == [2, 1, 1]
    assert data.y[seen.examples].tolist() == [0, 1] and set(seen.examples) <= set(data.train.rows)


def test_the_picture_names_clients_and_classes(imported: tuple[DataSet, Overview]) -> None:
    data, seen = imported
    figure = draw(data, seen)
    words = {text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))}
    assert {"ann", "bob", "cem", "rain", "sun", "a sample of each class"} <= words
    assert any("(real): 3 clients" in word for word in words)
    assert png(data, seen).startswith(b"\x89PNG")


def test_of_many_clients_a_part_is_drawn_and_the_title_says_so(imported: tuple[DataSet, Overview]) -> None:
    data, seen = imported
    many = Overview(np.tile(seen.train, (40, 1)), np.tile(seen.test, (40, 1)), [f"c{n}" for n in range(120)],
                    seen.classes, seen.examples)  # fmt: skip
    titles = [axis.get_title() for axis in draw(data, many).axes]
    assert "training samples by client and class: 60 of 120 clients" in titles


def test_a_class_without_a_sample_has_no_example(imported: tuple[DataSet, Overview]) -> None:
    data, seen = imported
    seen.examples[0] = -1
    assert len(draw(data, seen).axes) == 4  # the cells, their scale, the sizes, one example
