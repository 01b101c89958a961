import json

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import stream
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.registry import CHARACTERS, GENERATED_SETS
from fedscale_ext.data.store import open_data_set
from fedscale_ext.data.synthetic.glyphs import FONTS, draw, templates, writer_style
from fedscale_ext.data.synthetic.synthesize import GENERATED, synthesize

ALL = np.arange(62)


def drawn(writer: int, labels: np.ndarray = ALL, seed: int = 1) -> np.ndarray:
    return draw(writer_style(seed, writer), labels, stream(seed, 0, writer, "glyph samples"))


@pytest.mark.parametrize("font", FONTS)
def test_every_font_has_62_different_characters(font):
    shapes = templates(font)
    assert shapes.shape == (62, 112, 112)
    inside = shapes > 0
    assert inside.sum(axis=(1, 2)).min() > 100
    assert len({glyph.tobytes() for glyph in inside}) == 62
    assert not inside[:, [0, -1]].any() and not inside[:, :, [0, -1]].any()


def test_distances_from_the_stroke_end_at_their_reach():
    from fedscale_ext.data.synthetic.glyphs import _REACH, _distance

    mask = np.zeros((1, 40, 40), dtype=bool)
    mask[0, 20, 20] = True
    distances = _distance(mask)[0]
    assert (distances[20, 20], distances[20, 23], distances[17, 24]) == (0.0, 3.0, 5.0)
    assert distances[0, 0] == distances.max() == _REACH


def test_ink_is_dark_on_white_and_within_the_picture():
    for writer in range(1, 13):
        pictures = drawn(writer)
        assert pictures.shape == (62, 28, 28) and pictures.dtype == np.uint8
        assert np.median(pictures) == 255
        assert pictures.min(axis=(1, 2)).max() < 140, "each picture has a visible stroke"
        border = np.concatenate([pictures[:, 0], pictures[:, -1], pictures[:, :, 0], pictures[:, :, -1]], axis=1)
        assert (border > 200).mean() > 0.97


def test_writers_differ_more_than_samples_of_one_writer():
    label = np.full(8, CHARACTERS.index("R"))
    pictures = np.stack([drawn(writer, label).astype(float) for writer in range(1, 13)])
    within = np.abs(pictures[:, 1:] - pictures[:, :-1]).mean()
    between = np.abs(pictures[1:] - pictures[:-1]).mean()
    assert 0 < within < 0.75 * between


def test_characters_are_told_apart_across_writers():
    """A nearest-mean rule learned on 30 writers reads new ones far better than chance (1.6 %)."""
    means = np.mean([drawn(writer).astype(float) for writer in range(1, 31)], axis=0)
    hits = []
    for writer in range(31, 41):
        flat = drawn(writer).reshape(62, -1).astype(float)
        distance = ((flat[:, None] - means.reshape(1, 62, -1)) ** 2).sum(-1)
        hits.append((distance.argmin(1) == ALL).mean())
    assert np.mean(hits) > 0.3


def test_folder_is_marked_generated_and_repeatable(tmp_path):
    report = synthesize("femnist", tmp_path / "a", writers=3)
    assert (report.clients, report.train_samples, report.test_samples) == (3, 297, 75)
    assert report.generated and "generated" in report.name
    about = json.loads((tmp_path / "a" / "dataset.json").read_text())
    assert about["generated"] is True and "generated" in about["name"] and about["settings"]["writers"] == 3
    data = open_data_set(tmp_path / "a", "femnist")
    assert data.generated and data.num_classes == 62
    synthesize("femnist", tmp_path / "b", writers=3)
    assert open_data_set(tmp_path / "b", "femnist").digest == data.digest
    assert not np.array_equal(drawn(1, seed=2), drawn(1, seed=1))
    content = verify(tmp_path / "a", "femnist")
    assert content.ok and content.generated and content.classes_present == 62 and data.test_sizes.tolist() == [25] * 3


def test_second_time_is_done_and_other_settings_need_force(tmp_path):
    out = tmp_path / "a"
    assert not synthesize("femnist", out, writers=1, samples_per_class=1).already_there
    time = (out / "dataset.json").stat().st_mtime_ns
    assert synthesize("femnist", out, writers=1, samples_per_class=1).already_there
    assert (out / "dataset.json").stat().st_mtime_ns == time
    with pytest.raises(UserError, match="--force"):
        synthesize("femnist", out, writers=2, samples_per_class=1)
    assert synthesize("femnist", out, writers=2, samples_per_class=1, force=True).clients == 2


def test_digits_are_the_first_ten_characters(tmp_path):
    report = synthesize("digits", tmp_path / "a", writers=2)
    assert (report.name, report.generated, report.train_samples, report.test_samples) == (
        "digits-generated",
        True,
        192,
        48,
    )
    data = open_data_set(tmp_path / "a", "digits")
    assert data.generated and data.num_classes == 10
    content = verify(tmp_path / "a", "digits")
    assert content.ok and content.classes_present == 10


def test_only_handwriting_can_be_generated(tmp_path):
    with pytest.raises(UserError, match="'cifar10' cannot be generated; femnist and digits can"):
        synthesize("cifar10", tmp_path / "a")


@pytest.mark.parametrize("wrong", [{"writers": 0}, {"writers": 3401}, {"samples_per_class": 0}, {"test_fraction": 1.0}])
def test_impossible_settings_are_refused(tmp_path, wrong):
    with pytest.raises(UserError):
        synthesize("femnist", tmp_path / "a", **{"writers": 1, **wrong})
    assert not (tmp_path / "a").exists()


def test_an_interrupted_synthesis_leaves_nothing(tmp_path):
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthesize("femnist", tmp_path / "a", writers=5, progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_told_with_the_data_set_that_can_be_generated(tmp_path):
    assert tuple(GENERATED) == GENERATED_SETS
    for data_set, way in (
        ("digits", "or generated data with `fedscale dataset synthesize digits`$"),
        (None, "or generated data with `fedscale dataset synthesize femnist`$"),
        ("cifar10", "or set data_set to femnist or digits, which `fedscale dataset synthesize` generates$"),
    ):
        with pytest.raises(UserError, match=f"does not exist: get real data with `fedscale dataset import …`,? {way}"):
            data_folder(tmp_path / "none", data_set)
