"""Shakespeare: LEAF's windows, texts by speaker, what both are refused for."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.formats.text import CHARACTERS, numbers
from fedscale_ext.data.importing.importers import import_leaf, import_text
from fedscale_ext.data.importing.options import TextOptions
from fedscale_ext.data.registry import known
from fedscale_ext.data.store import DataSet, open_data_set

TEXT = "".join(CHARACTERS[(7 * index + index // 88) % len(CHARACTERS)] for index in range(500))


def leaf(texts: dict[str, str], begin: int, end: int) -> dict[str, Any]:
    """LEAF's file of windows that begin at these places."""
    data = {
        user: {"x": [text[i : i + 80] for i in range(begin, end)], "y": [text[i + 80] for i in range(begin, end)]}
        for user, text in texts.items()
    }
    sizes = [len(user_data["y"]) for user_data in data.values()]
    return {"users": list(data), "num_samples": sizes, "hierarchies": ["PLAY"] * len(data), "user_data": data}


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def windows(data: DataSet, rows: np.ndarray) -> list[tuple[list[int], int]]:
    x, y = data.tensors(rows)
    assert x.shape[1:] == (1, 1, 80) and bool((x == x.round()).all())
    return [(window.flatten().int().tolist(), int(label)) for window, label in zip(x, y, strict=True)]


def test_every_character_has_a_number_below_90() -> None:
    entry = known("shakespeare")
    assert entry is not None and len(set(CHARACTERS)) == len(CHARACTERS) == entry.classes - 2
    assert numbers(CHARACTERS).tolist() == list(range(1, 89))
    assert numbers("é\u2014\U0001f600\x00~").tolist() == [0] * 5
    # LEAF's alphabet, and that of FedAdam's authors, whose 715 clients FedorAS has
    assert set(string.ascii_letters + string.digits + "\n !\"&'(),-.:;>?[]}") <= set(CHARACTERS)
    assert set("\r#$%*/@_") <= set(CHARACTERS)


def test_leafs_split_is_kept_and_windows_are_its_own(tmp_path: Path) -> None:
    texts = {"HAMLET_HAMLET": TEXT, "HAMLET_OPHELIA": TEXT[::-1]}
    written(tmp_path / "leaf" / "train" / "a_0.json", leaf(texts, 0, 6))
    written(tmp_path / "leaf" / "test" / "a_0.json", leaf(texts, 90, 92))
    report = import_text(tmp_path / "leaf", tmp_path / "out")
    assert (report.clients, report.train_samples, report.test_samples) == (2, 12, 4)
    data = open_data_set(tmp_path / "out", "shakespeare")
    assert data.num_classes == 90 and data.client_names == list(texts)
    for client, text in enumerate(texts.values(), start=1):
        symbols = numbers(text).tolist()
        assert windows(data, data.train_rows(client)) == [(symbols[i : i + 80], symbols[i + 80]) for i in range(6)]
        assert windows(data, data.test_rows(client)) == [(symbols[i : i + 80], symbols[i + 80]) for i in (90, 91)]
    assert import_text(tmp_path / "leaf", tmp_path / "fewer", options=TextOptions(stride=3)).train_samples == 4


def test_a_speaker_with_windows_in_one_file_is_not_left_out(tmp_path: Path) -> None:
    written(tmp_path / "leaf" / "train" / "a.json", leaf({"A": TEXT, "B": TEXT}, 0, 3))
    content = leaf({"A": TEXT}, 90, 92)
    for speaker in ("B", "C"):
        content["users"].append(speaker)
        content["user_data"][speaker] = {"x": [], "y": []}
    written(tmp_path / "leaf" / "test" / "a.json", content)
    report = import_text(tmp_path / "leaf", tmp_path / "out")
    assert (report.clients, report.left_out) == (2, 1)


def test_texts_are_cut_so_that_every_symbol_is_read_once(tmp_path: Path) -> None:
    path = written(tmp_path / "texts.json", {"A": TEXT, "B": TEXT[:81], "C": TEXT[:80]})
    report = import_text(path, tmp_path / "out", options=TextOptions(test_fraction=0.3))
    assert (report.clients, report.left_out) == (2, 1)  # C has no label for its only window
    data = open_data_set(tmp_path / "out", "shakespeare")
    rows = np.sort(np.concatenate([data.train_rows(1), data.test_rows(1)]))
    symbols = numbers(TEXT).tolist()
    assert sorted(windows(data, rows)) == sorted((symbols[i : i + 80], symbols[i + 80]) for i in range(0, 420, 80))
    assert len(data.test_rows(1)) == 2
    assert import_text(path, tmp_path / "wide", options=TextOptions(stride=200)).train_samples == 3 - 1 + 1


@pytest.mark.parametrize(
    ("content", "stride", "why"),
    [
        ({"A": TEXT}, 79, "stride of 79 would put the same symbols"),
        ({"A": TEXT}, 0, "goes nowhere"),
        ({"A": 5}, None, "neither LEAF JSON"),
        ([TEXT], None, "neither LEAF JSON"),
        ({"users": ["A"], "user_data": {}}, None, "neither LEAF JSON"),
        ({"users": ["A"], "user_data": {"A": {"x": [TEXT[:80]], "y": []}}}, None, "not lists of one length"),
        ({"users": ["A"], "user_data": {"A": {"x": [TEXT[:79]], "y": ["b"]}}}, 80, "80 characters"),
        ({"users": ["A"], "user_data": {"A": {"x": [TEXT[:80]], "y": ["bc"]}}}, 80, "its label one"),
        ({"users": ["A"], "user_data": {"A": {"x": [[1] * 80], "y": [1]}}}, 80, "80 characters"),
        (leaf({"A": TEXT}, 0, 3), None, "is not split and LEAF's windows overlap"),
        ({"C": TEXT[:80]}, None, "there are no samples"),
    ],
)
def test_what_is_no_such_text_is_refused_in_a_sentence(
    tmp_path: Path, content: Any, stride: int | None, why: str
) -> None:
    path = written(tmp_path / "all.json", content)
    with pytest.raises(UserError, match=why) as error:
        import_text(path, tmp_path / "out", options=TextOptions(stride=stride))
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_text_is_no_pictures_and_pictures_no_text(tmp_path: Path) -> None:
    path = written(tmp_path / "texts.json", {"A": TEXT})
    with pytest.raises(UserError, match="import it as shakespeare"):
        import_text(path, tmp_path / "out", "femnist")
    with pytest.raises(UserError, match="not LEAF JSON"):
        import_leaf(path, tmp_path / "out")
