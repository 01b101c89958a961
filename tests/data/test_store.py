import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.store import open_data_set

from .conftest import HEADER, picture

TRAIN = [("b", 3), ("a", 1), ("b", 61), ("c", 0), ("a", 2)]
TEST = [("a", 1), ("z", 5), ("b", 3), ("a", 2)]


def test_rows_labels_and_pixels_follow_the_csv(make_folder):
    data = open_data_set(make_folder(TRAIN, TEST), "femnist")
    assert data.client_names == ["b", "a", "c"]
    assert (data.train_sizes.tolist(), data.test_sizes.tolist()) == ([2, 2, 1], [1, 2, 0])
    assert [data.train_rows(c).tolist() for c in (1, 2, 3)] == [[0, 2], [1, 4], [3]]
    assert [data.test_rows(c).tolist() for c in (1, 2, 3)] == [[7], [5, 8], []]
    assert data.test_only_clients == 1
    assert data.x.shape == (9, 1, 28, 28) and data.num_classes == 62 and not data.generated
    assert np.array_equal(data.x[6, 0], picture(6))
    x, y = data.tensors(data.train_rows(1))
    assert y.tolist() == [3, 61]
    expected = (torch.from_numpy(picture(2)).float() / 255 - 0.1307) / 0.3081
    assert torch.allclose(x[1, 0], expected, atol=1e-6)
    assert torch.equal(x, data.batch([0, 2]))
    assert data.batch(data.test_rows(3)).shape == (0, 1, 28, 28)


@pytest.mark.parametrize("client", [0, 4, -1])
def test_a_client_that_does_not_exist_is_an_error(make_folder, client):
    data = open_data_set(make_folder(TRAIN), "femnist")
    with pytest.raises(IndexError, match=r"1\.\.3"):
        data.train_rows(client)


def test_without_test_csv_each_client_is_split_by_the_seed(make_folder):
    rows = [("a", 0)] * 10 + [("b", 1)] * 62 + [("c", 2)] + [("d", 3)] * 2
    folder = make_folder(rows)
    data = open_data_set(folder, "femnist", seed=1)
    assert data.test_sizes.tolist() == [2, 12, 0, 1]
    assert data.train_sizes.tolist() == [8, 50, 1, 1]
    for client in range(1, 5):
        both = np.concatenate([data.train_rows(client), data.test_rows(client)])
        assert sorted(both) == [row for row, (name, _) in enumerate(rows) if name == "abcd"[client - 1]]
    again, other = open_data_set(folder, "femnist", seed=1), open_data_set(folder, "femnist", seed=2)
    assert again.digest == data.digest != other.digest
    assert np.array_equal(again.test_rows(2), data.test_rows(2))
    assert not np.array_equal(other.test_rows(2), data.test_rows(2))
    assert open_data_set(folder, "femnist", test_split=0.0).test_sizes.sum() == 0


def test_names_of_clients_are_part_of_the_digest(make_folder, tmp_path):
    folder = make_folder([("a", 0)] * 5 + [("b", 1)] * 5)
    other = tmp_path / "swapped.csv"
    digests = set()
    for first, second in (("a", "b"), ("b", "a"), ("ab", "c"), ("a,b", "c"), ("a", "b,c")):
        rows = [f'"{first if row < 5 else second}",img/{row}.png,n,{row // 5}' for row in range(10)]
        other.write_text("\n".join([HEADER, *rows]) + "\n")
        digests.add(open_data_set(folder, "femnist", data_map_file=other).digest)
    assert len(digests) == 5


def test_a_test_csv_of_strangers_is_said_and_replaced_by_a_split(make_folder):
    data = open_data_set(make_folder([("a", 0)] * 5, [("x", 1), ("y", 1)]), "femnist")
    assert "no training client" in data.test_source
    assert (data.test_sizes.tolist(), data.test_only_clients) == ([1], 2)


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ([("anna", 0), ("anna ", 1), ("bob", 2)] * 3, None),
        ([("anna", 0), ("bob", 2)], [("anna ", 1), ("bob", 2)]),  # her tests are under another name
    ],
)
def test_names_that_are_hard_to_tell_apart_are_noted(make_folder, train, test):
    data = open_data_set(make_folder(train, test), "femnist")
    assert data.client_names == list(dict.fromkeys(name for name, _ in train))
    assert "clients 'anna', 'anna ' differ only by case or spaces, and stay apart" in data.notes


def test_data_map_file_takes_the_place_of_train_csv(make_folder, tmp_path):
    folder = make_folder(TRAIN)
    other = tmp_path / "map.csv"
    other.write_text(f"{HEADER}\nq,img/0.png,n,3\nq,img/1.png,n,1\n")
    data = open_data_set(folder, "femnist", data_map_file=other)
    assert data.client_names == ["q"] and len(data.x) == 2


def test_shape_is_resized_and_refused_when_absurd(make_folder):
    folder = make_folder(TRAIN)
    data = open_data_set(folder, "femnist", input_shape=(3, 32, 20))
    assert data.input_shape == (3, 32, 20)
    assert data.batch([0]).shape == (1, 3, 32, 20)
    for shape in ((2, 28, 28), (1, 0, 28), (1, 28, 100000), (1, 28)):
        with pytest.raises(UserError, match="input shape"):
            open_data_set(folder, "femnist", input_shape=shape)


def test_open_image_is_read_below_train_as_fedscale_does(make_folder):
    folder = make_folder(TRAIN)
    (folder / "train").mkdir()
    os.rename(folder / "img", folder / "train" / "img")
    assert open_data_set(folder, "openImg").x.shape == (5, 3, 64, 64)


def test_duplicate_rows_are_allowed(make_folder):
    folder = make_folder(TRAIN)
    path = folder / "client_data_mapping" / "train.csv"
    path.write_text(path.read_text() + "b,img/0.png,name3,3\n\n")
    assert open_data_set(folder, "femnist", test_split=0.0).train_sizes.tolist() == [3, 2, 1]


def edit(folder: Path, line: int, text: str) -> None:
    path = folder / "client_data_mapping" / "train.csv"
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("line", "text", "said"),
    [
        (3, "a,img/1.png,n,one", r"line 3 of .*train\.csv: the label 'one' is not an integer"),
        (3, "a,img/1.png,n,1_0", r"line 3 of .*train\.csv: the label '1_0' is not an integer"),
        (3, "a,img/1.png,n,1.0", "line 3 .* not an integer"),
        (3, "a,img/1.png,n,62", r"line 3 .* label 62 is out of range \(0\.\.61\)"),
        (3, "a,img/1.png,n,-1", "line 3 .* out of range"),
        (4, "a,../img/1.png,n,1", "line 4 .* leads out of"),
        (4, "a,/etc/passwd,n,1", "line 4 .* leads out of"),
        (4, "a,img/none.png,n,1", r"line 4 .*img/none\.png, which does not exist"),
        (4, "a,img,n,1", "which does not exist"),
        (4, "a,img/1.png,1", "line 4 .* number of columns"),
        (4, ",img/1.png,n,1", "line 4 .* no client_id"),
        (1, "client_id,label_name,label_id", "column sample_path .* is missing"),
        (1, "client_id,sample_path,label_name", "column label_id .* is missing"),
        (1, "client_id,client_id,sample_path,label_id", "has the column 'client_id' twice; keep one of them"),
        (1, "client_id,sample_path,label_id, label_id", r"train\.csv: the header has the column 'label_id' twice"),
        (1, "client_id", "lacks a column"),
        (1, "a,img/1.png,n,1", "has no header"),
    ],
)
def test_a_broken_csv_is_named_with_its_line(make_folder, line, text, said):
    folder = make_folder(TRAIN)
    edit(folder, line, text)
    with pytest.raises(UserError, match=said):
        open_data_set(folder, "femnist")


@pytest.mark.parametrize("content", ["", HEADER + "\n"])
def test_an_empty_csv_is_an_error(make_folder, content):
    folder = make_folder(TRAIN)
    (folder / "client_data_mapping" / "train.csv").write_text(content)
    with pytest.raises(UserError, match=r"train\.csv .*(empty|no usable rows)"):
        open_data_set(folder, "femnist")


def test_binary_in_place_of_csv_is_an_error(make_folder):
    folder = make_folder(TRAIN)
    (folder / "client_data_mapping" / "train.csv").write_bytes(b"\xff\xfe\x00\x81" * 100)
    with pytest.raises(UserError, match="not a csv file"):
        open_data_set(folder, "femnist")


def test_missing_data_names_the_two_ways_out(tmp_path, make_folder):
    folder = make_folder(TRAIN)
    (folder / "client_data_mapping" / "train.csv").unlink()
    (tmp_path / "bare").mkdir()
    for data_dir in (tmp_path / "absent", tmp_path / "bare", folder):
        with pytest.raises(UserError, match=r"fedscale dataset import.*fedscale dataset synthesize femnist"):
            open_data_set(data_dir, "femnist")


def test_unknown_data_set_and_bad_split_are_errors(make_folder):
    folder = make_folder(TRAIN)
    with pytest.raises(UserError, match="'femmist' is not known"):
        open_data_set(folder, "femmist")
    with pytest.raises(UserError, match="fraction"):
        open_data_set(folder, "femnist", test_split=1.0)
    (folder / "dataset.json").write_text("{broken")
    with pytest.raises(UserError, match=r"dataset\.json"):
        open_data_set(folder, "femnist")


@pytest.mark.parametrize(("loader", "data_set"), [("femnist.FEMNIST", "femnist"), ("openimage.OpenImage", "openImg")])
def test_fedscales_own_loaders_read_what_is_imported(tmp_path, loader, data_set):
    module, name = loader.split(".")
    loader_class = getattr(pytest.importorskip(f"fedscale.dataloaders.{module}"), name)
    pixels = np.stack([picture(n) for n in range(20)])
    np.savez(tmp_path / "a.npz", x=pixels, y=np.arange(20), client=np.arange(20) // 10)
    import_npz(tmp_path / "a.npz", tmp_path / "out", data_set)
    data = open_data_set(tmp_path / "out", data_set, input_shape=(3, 28, 28))
    row = 0
    for split in ("train", "test"):
        theirs = loader_class(str(tmp_path / "out"), dataset=split)
        for image, label in (theirs[index] for index in range(len(theirs))):
            assert np.array_equal(np.asarray(image).transpose(2, 0, 1), data.x[row]) and label == data.y[row]
            row += 1
    assert row == len(data.x) == 20
