"""Which classes a source's labels become, and what an import reports about them."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_folder, import_layout, import_leaf, import_npz
from fedscale_ext.data.importing.options import ImportOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.importing.writer import Written
from fedscale_ext.data.layout.labels import spent_note, whole_numbers
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import open_data_set
from tests.data.conftest import picture

CLIENT = np.repeat([1, 2], 6)
X = np.stack([picture(number, (6, 6)) for number in range(12)])


def imported(folder: Path, y: object, data_set: str = "own", **more: object) -> Written:
    folder.mkdir(exist_ok=True)
    np.savez(folder / "a.npz", **{"x": X, "y": np.asarray(y), "client": CLIENT, **more})
    return import_npz(folder / "a.npz", folder / "out", data_set)


def csv_labels(folder: Path) -> set[tuple[str, str]]:
    """(name, number) of the labels in both csv files."""
    pairs = set()
    for path in (folder / "client_data_mapping").glob("*.csv"):
        with open(path, newline="") as file:
            pairs |= {(row["label_name"], row["label_id"]) for row in csv.DictReader(file)}
    return pairs


def test_classes_of_one_name_are_reported(tmp_path: Path) -> None:
    written = imported(tmp_path, np.resize([0, 1, 2], 12), classes=np.array(["cat", "dog", "cat"]))
    assert "classes 0, 2 have the name 'cat': results show them apart under one name" in written.notes
    assert not any("have the name" in note for note in imported(tmp_path / "b", np.resize([0, 1], 12)).notes)


@pytest.mark.parametrize(
    ("y", "names", "note"),
    [
        ([1, 2, 3, 4], ["1", "2", "3", "4"], "labels 1, 2, 3, 4 became classes 0 to 3"),
        ([-1, 1], ["-1", "1"], "labels -1, 1 became classes 0 and 1"),
        ([0.0, 2.0], ["0", "2"], "labels 0, 2 became classes 0 and 1"),
        ([7], ["7"], "labels 7 became classes 0"),
    ],
)
def test_labels_that_leave_gaps_are_numbered_from_0_and_keep_their_names(tmp_path: Path, y, names, note) -> None:
    written = imported(tmp_path, np.resize(y, 12))
    assert (written.classes, list(written.label_names)) == (len(names), names)
    assert note in written.notes
    assert csv_labels(tmp_path / "out") == {(name, str(number)) for number, name in enumerate(names)}
    data = open_data_set(tmp_path / "out", "own")
    assert data.num_classes == len(names) and set(data.y) == set(range(len(names))) and data.notes == ()
    again = import_npz(tmp_path / "a.npz", tmp_path / "out", "own")
    assert again.already_there and (again.notes, again.label_names) == (written.notes, written.label_names)


@pytest.mark.parametrize(("y", "which"), [(0, "class 0"), (7, "class 0 ('7')"), ("cat", "class 0 ('cat')")])
def test_samples_of_one_class_are_noted(tmp_path: Path, y: Any, which: str) -> None:
    note = f"all samples have one class, {which}: a model has nothing to tell apart"
    assert note in imported(tmp_path, np.resize(np.array([y]), 12)).notes
    two = imported(tmp_path / "b", np.resize(np.array([y, "dog" if y == "cat" else 1]), 12)).notes
    assert not any("have one class" in each for each in two)


@pytest.mark.parametrize("y", [np.arange(12) % 3, np.arange(12) % 3.0, np.arange(12) % 2 == 0])
def test_labels_from_0_on_stay_as_they_are(tmp_path: Path, y: np.ndarray) -> None:
    written = imported(tmp_path, y)
    assert written.classes == len(np.unique(y)) and written.label_names == ()
    assert not any("became classes" in note for note in written.notes)
    data = open_data_set(tmp_path / "out", "own")
    rows = {data.x[row].tobytes(): int(data.y[row]) for row in range(12)}
    assert rows == {pixels[None].tobytes(): int(label) for pixels, label in zip(X, y, strict=True)}


def test_a_stray_label_is_one_class_that_is_named_with_its_row(tmp_path: Path) -> None:
    y = np.arange(12) % 2
    y[8] = 100_000
    written = imported(tmp_path, y)
    assert written.classes == 3
    note = next(note for note in written.notes if "single sample" in note)
    assert note.startswith("class 2 ('100000') has a single sample: row 8 of 'x' and 'y' in ")
    assert note.endswith("(counted from 0)")


def test_several_classes_of_one_sample_are_counted(tmp_path: Path) -> None:
    written = imported(tmp_path, np.arange(12))
    assert any(
        note.startswith("12 classes have a single sample each: 0, 1, 2, 3, 4 and 7 more; that of class 0 is row")
        for note in written.notes
    )


def test_text_labels_are_numbered_by_name(tmp_path: Path) -> None:
    words = np.resize(["dog", "ant", "bee"], 12)
    written = imported(tmp_path / "own", words)
    assert written.label_names == ("ant", "bee", "dog")
    assert csv_labels(tmp_path / "own" / "out") == {("ant", "0"), ("bee", "1"), ("dog", "2")}
    assert imported(tmp_path / "bytes", words.astype("S")).label_names == ("ant", "bee", "dog")
    known = imported(tmp_path / "known", np.resize(["truck", "cat"], 12), "cifar10")
    assert csv_labels(known.data_dir) == {("truck", "9"), ("cat", "3")}
    other = imported(tmp_path / "other", np.resize(["truck", "car"], 12), "cifar10")
    assert "the labels in 'y' 'car' are no classes of cifar10, so all are numbered in alphabetical order" in other.notes
    digits = imported(tmp_path / "digits", np.resize(["3", "10"], 12), "emnist")
    assert csv_labels(digits.data_dir) == {("3", "3"), ("10", "10")}


def test_names_of_labels_keep_their_meaning(tmp_path: Path) -> None:
    names = np.array(["ant", "bee", "cat", "dog"])
    written = imported(tmp_path / "a", np.resize([1, 3], 12), classes=names)
    assert (written.classes, written.label_names) == (4, tuple(names))
    assert "2 of 4 classes have no sample: 0 ('ant'), 2 ('cat')" in written.notes
    assert open_data_set(tmp_path / "a" / "out", "own").num_classes == 4
    text = imported(tmp_path / "b", np.resize(["dog", "bee"], 12), classes=names)
    assert text.classes == 4 and csv_labels(text.data_dir) == {("bee", "1"), ("dog", "3")}
    with pytest.raises(UserError, match=r"beyond the 4 names in 'classes'.* row 3 \(counted from 0\) is 4"):
        imported(tmp_path / "c", [1, 2, 3, 4] * 3, classes=names)
    with pytest.raises(UserError, match="has labels that 'classes' lacks: 'emu'"):
        imported(tmp_path / "d", np.resize(["emu", "bee"], 12), classes=names)
    numbers = imported(tmp_path / "e", np.resize([1, 3], 12), classes=np.array([1, 3]))
    assert "array 'classes' holds no text and was not taken as names of the labels" in numbers.notes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1.0, 2.5], r"y must be a list of integers, but row 1 \(counted from 0\) is 2\.5"),
        ([1.0, float("nan")], "row 1 .* is nan"),
        ([1.0, 1e300], r"row 1 .* is 1e\+300"),
        (np.array([1, 2**63], dtype=np.uint64), "row 1 .* is 9223372036854775808"),
        ([[1], [2]], "must be a list of integers, not int64 of 2 dimensions"),
        (["a", "b"], "must be a list of integers, not <U1"),
        ([1 + 2j], "must be a list of integers, not complex128"),
    ],
)
def test_labels_that_are_no_whole_numbers_are_refused_by_row(values: object, said: str) -> None:
    with pytest.raises(UserError, match=said):
        whole_numbers(values, "y")


def test_a_label_of_a_known_kind_out_of_range_names_its_row(tmp_path: Path) -> None:
    y = np.arange(12) % 10
    y[7] = 10
    with pytest.raises(UserError, match=r"row 7 of 'x' and 'y' in .* has label 10, out of range for mnist \(0 to 9\)"):
        imported(tmp_path, y, "mnist")
    data = {"users": ["bob"], "user_data": {"bob": {"x": [[0.5] * 4] * 3, "y": [1, 2, 77]}}}
    (tmp_path / "leaf.json").write_text(json.dumps(data))
    with pytest.raises(UserError, match=r"sample 2 of user 'bob' in .*leaf.json \(counted from 0\) has label 77"):
        import_leaf(tmp_path / "leaf.json", tmp_path / "leaf", "femnist")


@pytest.mark.parametrize("bad", [np.nan, 1.5, -0.1])
def test_pixels_that_are_no_floats_from_0_to_1_name_their_row(tmp_path: Path, bad: float) -> None:
    x = X.astype(np.float32) / 255
    x[5, 2, 3] = bad
    with pytest.raises(UserError, match=r"floats in 0\.\.1, but row 5 \(counted from 0\) has others"):
        imported(tmp_path, np.arange(12) % 2, x=x)
    with pytest.raises(UserError, match=r"not finite or beyond 65504, first in row 5 \(counted"):
        imported(tmp_path / "values", np.arange(12) % 2, "uci_har", x=np.where(x == x[5, 2, 3], np.inf, x))


def folders(root: Path, labels: tuple[str, ...]) -> Path:
    for client in ("ann", "bob"):
        for number, label in enumerate(labels):
            folder = root / client / label
            folder.mkdir(parents=True)
            for sample in range(3):
                Image.fromarray(picture(10 * number + sample + 100 * (client == "bob"), (6, 6))).save(
                    folder / f"{sample}.png"
                )
    return root


def test_folders_that_are_numbers_are_numbered_from_0(tmp_path: Path) -> None:
    written = import_folder(folders(tmp_path / "a", ("1", "2", "10")), tmp_path / "out", "own")
    assert (written.classes, written.label_names) == (3, ("1", "2", "10"))
    assert "labels 1, 2, 10 became classes 0 to 2" in written.notes
    same = import_folder(folders(tmp_path / "b", ("01", "1")), tmp_path / "same", "own")
    assert same.classes == 1 and "the label folders '01', '1' are one class" in same.notes
    alike = import_folder(folders(tmp_path / "c", ("Cat", "cat")), tmp_path / "alike", "own")
    assert alike.classes == 2 and "labels 'Cat', 'cat' differ only by case or spaces, and stay apart" in alike.notes
    letters = import_folder(folders(tmp_path / "d", ("A", "a")), tmp_path / "letters", "own")
    assert letters.notes == ()
    with pytest.raises(UserError, match=r"0\.png has label 10, out of range for mnist"):
        import_folder(tmp_path / "a", tmp_path / "known", "mnist")


def test_a_layout_anew_keeps_names_and_number_of_classes(tmp_path: Path) -> None:
    import_folder(folders(tmp_path / "a", ("ant", "bee")), tmp_path / "out", "own")
    anew = import_layout(tmp_path / "out", tmp_path / "anew", "own", ImportOptions(partition=Partition("iid", 3)))
    assert (anew.classes, anew.label_names) == (2, ("ant", "bee"))


def test_labels_by_hand_are_not_renumbered_and_their_gaps_are_reported(make_folder) -> None:
    folder = make_folder([("a", 1), ("a", 2), ("b", 4), ("b", 1)])
    (folder / "dataset.json").write_text(json.dumps({"data_set": "own", "shape": [1, 28, 28]}))
    note = "5 classes by the labels: 2 of 5 classes have no sample: 0, 3"
    report = verify(folder, "own")
    assert report.ok and report.classes == 5 and note in report.notes
    data = open_data_set(folder, "own")
    assert data.num_classes == 5 and data.notes == (note,) and set(data.y) == {1, 2, 4}
    (folder / "dataset.json").write_text(json.dumps({"data_set": "own", "shape": [1, 28, 28], "classes": 6}))
    assert open_data_set(folder, "own").notes == ("6 classes by dataset.json: 3 of 6 classes have no sample: 0, 3, 5",)


def test_classes_that_public_samples_take_whole_are_named_with_their_tests() -> None:
    names = ["a", "b", "c", "d"]
    train, public, test = np.array([0, 0, 3]), np.array([1, 0, 2]), np.array([1, 1, 0, 2])
    assert spent_note(train, np.array([0, 3]), test, names) == []
    (note,) = spent_note(train, public, test, names)
    assert note.startswith("public samples take all training samples of class 1 ('b'), 2 ('c'), so that clients cannot")
    assert "3 of clients' 4 test samples have them" in note
    (one,) = spent_note(train, np.array([1]), test, names)
    assert "class 1 ('b'), so that clients cannot learn this class; 2 of clients' 4 test samples have it" in one


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_label_is_no_class(tmp_path: Path, empty: str) -> None:
    with pytest.raises(UserError, match="the labels in 'y' are not complete, one is empty: give each sample a label"):
        imported(tmp_path / "in", ["a", "b"] * 5 + ["a", empty])
    assert not (tmp_path / "in" / "out").exists()


def test_a_folder_that_names_only_its_first_classes_is_written_anew(tmp_path: Path) -> None:
    imported(tmp_path, np.resize([0, 1, 2, 4], 12))
    out = tmp_path / "out"
    for path in (out / "client_data_mapping").glob("*.csv"):
        rows = path.read_text().replace(",4,3\n", ",4,4\n")
        path.write_text(rows)
    about = json.loads((out / "dataset.json").read_text())
    del about["classes"]
    (out / "dataset.json").write_text(json.dumps(about | {"label_names": ["0", "1"]}))
    options = ImportOptions(partition=Partition("iid", 2))
    assert import_layout(out, tmp_path / "anew", "own", options).classes == 5
    assert open_data_set(tmp_path / "anew", "own").num_classes == 5
