"""Files that several rows of a folder name, above all as a test sample and as a training sample."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import open_data_set

MakeFolder = Callable[..., Path]
SHAPE = (1, 28, 28)


def rename_rows(folder: Path, split: str, files: dict[str, str]) -> None:
    """Have rows of a csv name other files."""
    path = folder / "client_data_mapping" / f"{split}.csv"
    text = path.read_text()
    for before, after in files.items():
        text = text.replace(f",{before},", f",{after},")
    path.write_text(text)


@pytest.mark.parametrize("written", ["img/1.png", "./img/1.png", "img//1.png", "img/./1.png"])
def test_a_test_sample_that_is_a_training_sample_is_noted(make_folder: MakeFolder, written: str) -> None:
    folder = make_folder([("a", 0), ("a", 1), ("b", 0)], [("a", 1), ("b", 0)])
    rename_rows(folder, "test", {"img/3.png": written})
    note = f"1 test sample is a training sample too ({written}): name each file in one row"
    checked = verify(folder, "own", input_shape=SHAPE)
    assert checked.ok and [text for text in checked.notes if "row" in text] == [note]
    notes = open_data_set(folder, "own", input_shape=SHAPE).notes
    assert [text for text in notes if "row" in text] == [note]


def test_all_such_rows_are_counted_and_those_within_a_file_apart(make_folder: MakeFolder) -> None:
    folder = make_folder([("a", 0), ("a", 1), ("b", 0), ("b", 1)], [("a", 1), ("a", 0), ("b", 0), ("b", 1)])
    rename_rows(folder, "test", {"img/4.png": "img/2.png", "img/5.png": "img/2.png", "img/6.png": "img/0.png"})
    rename_rows(folder, "train", {"img/1.png": "img/0.png"})
    shared = "3 test samples are training samples too (the first is img/2.png): name each file in one row"
    assert [text for text in verify(folder, "own", input_shape=SHAPE).notes if "row" in text] == [
        "2 rows name a file that an earlier row names", shared
    ]  # fmt: skip
    assert shared in open_data_set(folder, "own", input_shape=SHAPE).notes


def test_a_share_that_is_held_out_counts_as_well(make_folder: MakeFolder) -> None:
    folder = make_folder([("a", 0)] * 10)
    rename_rows(folder, "train", {f"img/{number}.png": "img/0.png" for number in range(10)})
    notes = open_data_set(folder, "own", input_shape=SHAPE, test_split=0.2).notes
    assert "2 test samples are training samples too (the first is img/0.png): name each file in one row" in notes


def test_samples_of_clients_who_never_train_are_no_test_samples_of_a_job(make_folder: MakeFolder) -> None:
    folder = make_folder([("a", 0), ("b", 1)], [("a", 1), ("z", 0)])
    rename_rows(folder, "test", {"img/3.png": "img/0.png"})
    assert not any("row" in text for text in open_data_set(folder, "own", input_shape=SHAPE).notes)


def test_the_same_path_below_two_folders_is_two_files(make_folder: MakeFolder) -> None:
    folder = make_folder([("a", 0), ("b", 1)], [("a", 0), ("b", 1)])
    for split, first in (("train", 0), ("test", 2)):
        (folder / split / "img").mkdir(parents=True)
        for number in range(2):
            (folder / "img" / f"{first + number}.png").rename(folder / split / "img" / f"{number}.png")
    rename_rows(folder, "test", {"img/2.png": "img/0.png", "img/3.png": "img/1.png"})
    checked = verify(folder, "openimage", input_shape=(3, 28, 28))
    assert checked.test_samples == 2 and not any("row" in text for text in checked.notes)
