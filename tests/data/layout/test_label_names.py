"""label_name and label_id of a folder's csv files, which may contradict each other."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from fedscale_ext.cli.app import app
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_layout
from fedscale_ext.data.importing.options import ImportOptions
from fedscale_ext.data.layout import label_names
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.registry import known
from fedscale_ext.data.store import open_data_set

Rows = list[tuple[str, int]]
Named = Callable[..., Path]
TRAIN: Rows = [("capital", 0), ("digit", 1), ("small", 2)]
HEADER = "client_id,sample_path,label_name,label_id"


@pytest.fixture
def named(tmp_path: Path) -> Named:
    """``named(train rows, test rows)``; rows are (label_name, label_id), all of one client."""

    def make(train: Rows, test: Rows | None = None, header: str = HEADER, **about: object) -> Path:
        folder = tmp_path / "data"
        (folder / "client_data_mapping").mkdir(parents=True)
        number = 0
        for split, rows in (("train", train), ("test", test or [])):
            lines = [header]
            for name, label in rows:
                Image.new("L", (4, 4), number).save(folder / f"{number}.png")
                lines.append(f"a,{number}.png,{name},{label}")
                number += 1
            if rows:
                (folder / "client_data_mapping" / f"{split}.csv").write_text("\n".join(lines) + "\n")
        description = {"name": "n", "data_set": "kinds", "shape": [1, 4, 4], "notes": [], **about}
        (folder / "dataset.json").write_text(json.dumps(description))
        return folder

    return make


def test_names_with_other_numbers_in_test_csv_are_wrong(named: Named) -> None:
    folder = named(TRAIN, [("capital", 2), ("digit", 0), ("small", 1), ("capital", 2)])
    sentences = (
        "label_name 'capital' has label_id 0 in train.csv and 2 in test.csv: check both files",
        "label_name 'digit' has label_id 1 in train.csv and 0 in test.csv: check both files",
        "label_name 'small' has label_id 2 in train.csv and 1 in test.csv: check both files",
    )
    checked = verify(folder, "kinds")
    assert not checked.ok and checked.contradictory_names == 3 and checked.problems == sentences
    assert open_data_set(folder, "kinds").notes == sentences


def test_one_wrong_row_is_shown_by_its_line(named: Named) -> None:
    folder = named([*TRAIN, ("capital", 0), ("", 1), ("capital", 2), ("capital", 0)], [("capital", 0), ("digit", 1)])
    sentence = (
        "label_name 'capital' has label_id 0 in 3 rows of train.csv, 2 in 1 row (line 7) and 0 in test.csv: "
        "check train.csv"
    )
    assert verify(folder, "kinds").problems == (sentence,)
    assert open_data_set(folder, "kinds").notes == (sentence,)


def test_names_of_dataset_json_count_too(named: Named) -> None:
    folder = named(TRAIN, label_names=["digit", "capital", "small"])
    assert verify(folder, "kinds").problems == (
        "label_name 'capital' has label_id 0 in train.csv and 1 in dataset.json: check both files",
        "label_name 'digit' has label_id 1 in train.csv and 0 in dataset.json: check both files",
    )


@pytest.mark.parametrize(
    ("train", "test", "about"),
    [
        (TRAIN, TRAIN, {"label_names": ["capital", "digit", "small"]}),
        (TRAIN, [("x", 0), ("x", 2), ("x", 1)], {}),  # a placeholder
        ([("x", 0), ("x", 1), ("x", 2)], None, {}),
        ([("digit", 0), ("digit", 1), ("digit", 2)], TRAIN, {}),
        ([("", 0), ("", 1), (" ", 2), (" ", 1)], None, {}),
        ([("cat", 0), ("cat", 1), ("dog", 2)], None, {"label_names": ["cat", "cat", "dog"]}),  # two labels of one name
        ([("cat", 0), ("tabby", 0), ("dog", 1)], None, {}),  # two names of one label
    ],
    ids=range(7),
)
def test_what_is_no_contradiction(named: Named, train: Rows, test: Rows | None, about: dict[str, object]) -> None:
    folder = named(train, test, **about)
    assert verify(folder, "kinds").ok and open_data_set(folder, "kinds").notes == ()


def test_a_column_of_another_name_is_not_compared(named: Named) -> None:
    folder = named([("8", 0), ("9", 1), ("8", 1)], header="client,path,width,label")
    assert verify(folder, "kinds").ok


def test_a_long_name_of_file_fits_into_a_note(named: Named) -> None:
    folder = named(TRAIN, [("capital", 2), ("digit", 1)])
    other = (folder / "client_data_mapping" / "train.csv").rename(folder / ("m" * 250))
    (note,) = open_data_set(folder, "kinds", data_map_file=other).notes
    assert "label_id 0 in mmm" in note and len(note) < 500


def test_labels_that_are_read_by_name_are_not_compared(named: Named) -> None:
    entry = known("fsdd")
    assert entry is not None and entry.by_name
    folder = named([("one", 0), ("two", 1), ("one", 7)], data_set="fsdd", shape=[1, 49, 40])
    assert verify(folder, "fsdd").contradictory_names == 0


def test_a_job_names_the_first_few(named: Named) -> None:
    names = [f"n{label}" for label in range(9)]
    folder = named(list(zip(names, range(9), strict=True)), [(name, 8 - label) for label, name in enumerate(names)])
    notes = open_data_set(folder, "kinds").notes
    assert len(notes) == 4 and notes[0].startswith("label_name 'n0' has label_id 0 in train.csv and 8 in test.csv")
    assert notes[3] == "5 more label names have several label_ids: `fedscale dataset verify` shows more of them"
    assert verify(folder, "kinds").contradictory_names == 8  # that of the middle agrees


def test_names_beyond_the_bound_are_counted(named: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_names, "MAX_PAIRS", 2)
    folder = named([*TRAIN, ("small", 2)])
    note = (
        "2 rows of train.csv have a label_name that was not compared with label_id: more than 2 names, or more than "
        "1,000 characters"
    )
    checked = verify(folder, "kinds")
    assert checked.ok and note in checked.notes and open_data_set(folder, "kinds").notes == (note,)


def test_the_command_says_so_and_exits_with_1(named: Named) -> None:
    folder = named(TRAIN, [("capital", 2), ("digit", 1)])
    result = CliRunner().invoke(app, ["dataset", "verify", str(folder)])
    assert result.exit_code == 1 and "label_name 'capital' has label_id 0 in train.csv" in result.stderr
    assert any(line.split()[-1] == "1" for line in result.stdout.splitlines() if "contradictory label names" in line)


def rows_of(folder: Path, split: str = "train") -> list[str]:
    lines = (folder / "client_data_mapping" / f"{split}.csv").read_text().splitlines()[1:]
    return [",".join(line.split(",")[2:]) for line in lines]


def test_an_import_of_a_layout_keeps_the_csvs_names(named: Named, tmp_path: Path) -> None:
    folder = named([*TRAIN, ("small", 2)], [("digit", 1)])
    written = import_layout(folder, tmp_path / "out", "kinds", ImportOptions(name="n"))
    assert rows_of(written.data_dir) == ["capital,0", "digit,1", "small,2", "small,2"]
    assert rows_of(written.data_dir, "test") == ["digit,1"]
    assert json.loads((written.data_dir / "dataset.json").read_text())["label_names"] == ["capital", "digit", "small"]


def test_an_import_of_a_layout_refuses_names_that_contradict_labels(named: Named, tmp_path: Path) -> None:
    folder = named(TRAIN, [("capital", 2), ("digit", 0)])
    with pytest.raises(UserError, match=r"label_name 'capital' has label_id 0 in train.csv and 2 in test") as refused:
        import_layout(folder, tmp_path / "out", "kinds", ImportOptions(name="n"))
    assert "and 1 more" in str(refused.value) and not (tmp_path / "out").exists()


def test_an_import_of_a_layout_refuses_names_that_contradict_its_description(named: Named, tmp_path: Path) -> None:
    folder = named(TRAIN, label_names=["small", "digit", "capital"])
    sentence = r"label_name 'capital' has label_id 0 in train.csv and 2 in dataset.json"
    with pytest.raises(UserError, match=re.escape(sentence)):
        import_layout(folder, tmp_path / "out", "kinds", ImportOptions(name="n"))
