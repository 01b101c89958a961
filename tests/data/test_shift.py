"""Feature shift: rotations, noise and domains by client, written once; the rest of the data stays as it is."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.images import write_png
from fedscale_ext.data.importing.importers import import_folder, import_npz
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.importing.shift import Shift, rotated, shift_words
from fedscale_ext.data.layout.overview import shift_of
from fedscale_ext.data.registry import known
from fedscale_ext.data.store import DataSet, open_data_set

RNG = np.random.default_rng(3)
X = RNG.integers(0, 256, (120, 28, 28)).astype(np.uint8)
Y = np.arange(120) % 10
IID = Partition("iid", 6)


def imported(folder: Path, shift: Shift | None, partition: Partition | None = IID, **arrays: Any) -> DataSet:
    np.savez(folder / "x.npz", **{"x": X, "y": Y, **arrays})
    out = folder / (shift.kind if shift else "plain")
    import_npz(folder / "x.npz", out, "mnist", NpzOptions(partition=partition, shift=shift, name="made"))
    return open_data_set(out, "mnist")


def rows_of(data: DataSet, client: int) -> np.ndarray:
    return np.concatenate([data.train_rows(client), data.test_rows(client)])


def test_quarter_turns_move_pixels_alone() -> None:
    x = RNG.integers(0, 256, (3, 8, 8)).astype(np.uint8)
    for degrees in (0, 90, 180, 270, -90, 360):
        turned = np.stack([np.asarray(Image.fromarray(plane).rotate(degrees)) for plane in x])
        assert np.array_equal(rotated(x, degrees), turned)
    wide = RNG.integers(0, 256, (1, 4, 8)).astype(np.uint8)
    assert np.array_equal(rotated(wide, 180), wide[:, ::-1, ::-1])
    assert rotated(wide, 90).shape == rotated(wide, 45).shape == wide.shape


def test_clients_are_turned_by_turns_and_keep_their_samples(tmp_path: Path) -> None:
    plain, turned = imported(tmp_path, None), imported(tmp_path, Shift("rotation", angles=(0.0, 90.0, 30.0)))
    assert turned.client_names == plain.client_names and turned.y.tolist() == plain.y.tolist()
    assert turned.digest != plain.digest
    for number in range(1, 7):
        angle = (0.0, 90.0, 30.0)[(number - 1) % 3]
        rows = rows_of(plain, number)
        assert rows.tolist() == rows_of(turned, number).tolist()
        for row in rows.tolist():
            assert np.array_equal(turned.x[row], rotated(np.asarray(plain.x[row]), angle))


def test_noise_grows_with_the_clients_number_and_is_drawn_once(tmp_path: Path) -> None:
    grey = np.full((600, 28, 28), 128, np.uint8)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shift = Shift("noise", level=0.01)
    noisy = imported(tmp_path / "a", shift, x=grey, y=np.arange(600) % 10)
    again = imported(tmp_path / "b", shift, x=grey, y=np.arange(600) % 10)
    assert np.array_equal(noisy.x, again.x)
    for number in range(1, 7):
        values = (noisy.x[rows_of(noisy, number)].astype(np.float64) - 128) / 255
        assert values.mean() == pytest.approx(0, abs=0.001)
        assert values.var() == pytest.approx(0.01 * number / 6, rel=0.05)
    assert len({noisy.x[row].tobytes() for row in range(len(noisy.x))}) == len(noisy.x)  # each has its own


def test_values_get_noise_in_parts_of_their_deviation() -> None:
    entry = known("unimib_shar")
    assert entry is not None
    x = np.zeros(entry.shape, np.float16)
    shift = Shift("noise", level=1.0)
    drawn = [shift.apply(x, 3, 4, entry, 1, row).astype(np.float64) for row in range(50)]
    assert np.std(drawn) == pytest.approx(entry.std[0], rel=0.05) and drawn[0].shape == entry.shape
    assert shift.apply(x, 3, 4, entry, 1, 0).dtype == np.float16


def test_clients_of_the_source_are_shifted_too(tmp_path: Path) -> None:
    owner = np.repeat(["a", "b"], 60)
    plain = imported(tmp_path, None, None, client=owner)
    turned = imported(tmp_path, Shift("rotation", angles=(0.0, 180.0)), None, client=owner)
    for number, same in ((1, True), (2, False)):
        rows = rows_of(plain, number)
        assert np.array_equal(plain.x[rows], turned.x[rows]) == same


def test_clients_have_samples_of_one_domain(tmp_path: Path) -> None:
    for domain, shade, pictures in (("photo", 40, 30), ("sketch", 200, 60)):
        for label in ("cat", "dog"):
            (tmp_path / "in" / domain / label).mkdir(parents=True)
            for number in range(pictures):
                pixels = np.full((1, 8, 8), shade + number % 5, np.uint8)
                write_png(tmp_path / "in" / domain / label / f"{number}.png", pixels)
    options = ImportOptions(partition=Partition("iid", 5), shift=Shift("domains"))
    import_folder(tmp_path / "in", tmp_path / "out", "animals", options)
    data = open_data_set(tmp_path / "out", "animals")
    assert sorted(data.client_names) == ["photo_1", "photo_2", "photo_3", "sketch_1", "sketch_2"]
    for number, name in enumerate(data.client_names, 1):
        seen = data.x[rows_of(data, number)]
        assert (seen < 100).all() if name.startswith("photo") else (seen >= 200).all()
        assert len(seen) == (20 if name.startswith("photo") else 60)
    with pytest.raises(UserError, match="1 clients cannot be of 2 domains"):
        few = ImportOptions(partition=Partition("iid", 1), shift=Shift("domains"))
        import_folder(tmp_path / "in", tmp_path / "few", "animals", few)
    with pytest.raises(UserError, match="add --partition iid --clients N"):
        import_folder(tmp_path / "in", tmp_path / "none", "animals", ImportOptions(shift=Shift("domains")))
    assert shift_of(tmp_path / "out") == "each client has samples of one domain, which begins its name"


def test_a_folder_says_how_its_clients_differ_and_is_not_taken_for_another(tmp_path: Path) -> None:
    imported(tmp_path, Shift("rotation"))
    written = json.loads((tmp_path / "rotation" / "dataset.json").read_text())
    assert written["settings"]["shift"] == {"kind": "rotation", "angles": [0.0, 90.0, 180.0, 270.0]}
    assert "turned by 0, 90, 180, 270 degrees" in shift_of(tmp_path / "rotation")
    assert "variance 0.1 i / N" in shift_words(Shift("noise").settings())
    imported(tmp_path, None)
    assert shift_of(tmp_path / "plain") == ""
    with pytest.raises(UserError, match="made with other settings"):
        options = NpzOptions(partition=IID, shift=Shift("noise"), name="made")
        import_npz(tmp_path / "x.npz", tmp_path / "rotation", "mnist", options)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"kind": "blur"}, "there is no feature shift 'blur'"),
        ({"kind": "rotation", "angles": ()}, "numbers of degrees"),
        ({"kind": "rotation", "angles": (float("nan"),)}, "numbers of degrees"),
        ({"kind": "noise", "level": 0.0}, "above 0"),
        ({"kind": "noise", "level": float("inf")}, "above 0"),
    ],
)
def test_shifts_that_cannot_be_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        Shift(**settings)


@pytest.mark.parametrize(
    ("kind", "data_set", "why"),
    [
        ("rotation", "uci_har", "are values, so take noise"),
        ("noise", "speech", "are sounds"),
        ("noise", "shakespeare", "are texts"),
    ],
)
def test_samples_that_cannot_be_shifted_are_refused(kind: str, data_set: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        ImportOptions(shift=Shift(kind)).check(known(data_set))
