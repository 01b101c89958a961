import csv
import fcntl
import json
import os
import sys

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing import importers
from fedscale_ext.data.importing.importers import import_folder, import_layout, import_leaf, import_npz, import_parquet
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.importing.sole_writer import sole_writer
from fedscale_ext.data.inputs import read_inputs
from fedscale_ext.data.store import open_data_set
from fedscale_ext.data.synthetic.synthesize import synthesize

from .conftest import picture

X = np.stack([picture(n) for n in range(40)])
Y = np.arange(40) % 10
CLIENT = np.repeat([7, 3, 11, 10], 10)


@pytest.fixture
def npz(tmp_path):
    path = tmp_path / "some.npz"
    np.savez(path, x=X, y=Y, client=CLIENT)
    return path


def samples_of(data, client):
    """{pixels: label} of all samples of a client."""
    rows = np.concatenate([data.train_rows(client), data.test_rows(client)])
    return {data.x[row].tobytes(): int(data.y[row]) for row in rows}


def test_npz_keeps_pixels_labels_and_clients(npz, tmp_path):
    seen = []
    report = import_npz(
        npz, tmp_path / "out", "femnist", NpzOptions(name="mine", progress=lambda *now: seen.append(now))
    )
    assert (report.clients, report.train_samples, report.test_samples) == (4, 32, 8)
    assert not report.generated and not report.already_there and seen[-1] == (40, 40)
    data = open_data_set(report.data_dir, "femnist")
    assert data.client_names == ["3", "7", "10", "11"] and data.name == "mine" and data.num_classes == 62
    for number, name in enumerate(data.client_names, start=1):
        client_rows = np.flatnonzero(int(name) == CLIENT)
        assert samples_of(data, number) == {X[row].tobytes(): Y[row] for row in client_rows}
        assert len(data.test_rows(number)) == 2
    with open(tmp_path / "out" / "client_data_mapping" / "train.csv") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["client_id", "sample_path", "label_name", "label_id"] and len(rows) == 33
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_fedscales_layout_for_open_image(npz, tmp_path):
    import_npz(npz, tmp_path / "out", "openimage")
    data = open_data_set(tmp_path / "out", "openimage", input_shape=(1, 28, 28))
    assert samples_of(data, 1) == {X[row].tobytes(): Y[row] for row in range(10, 20)}
    assert len(list((tmp_path / "out" / "test").rglob("*.png"))) == 8


def test_npz_with_its_own_split(tmp_path):
    path = tmp_path / "split.npz"
    np.savez(
        path, x_train=X[:30], y_train=Y[:30], c_train=CLIENT[:30], x_test=X[30:], y_test=Y[30:], c_test=CLIENT[:10]
    )
    report = import_npz(path, tmp_path / "a", "mnist")
    assert (report.clients, report.train_samples, report.test_samples) == (3, 30, 10)
    np.savez(path, x=X, y=Y, client=CLIENT, part=np.where(np.arange(40) % 4, "train", "test"))
    report = import_npz(path, tmp_path / "b", "mnist", NpzOptions(split="part"))
    assert (report.train_samples, report.test_samples) == (30, 10)
    data = open_data_set(tmp_path / "b", "mnist")
    tested = {data.x[row].tobytes() for client in range(1, 5) for row in data.test_rows(client)}
    assert tested == {X[row].tobytes() for row in range(0, 40, 4)}


@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "U5", "S5"])
def test_a_split_is_numbers_or_text(tmp_path, kind):
    words = {"U5": ["train", "test"], "S5": [b"train", b"test"]}.get(kind, [0, 1])
    np.savez(tmp_path / "a.npz", x=X, y=Y, client=CLIENT, part=np.resize(words, 40).astype(kind))
    report = import_npz(tmp_path / "a.npz", tmp_path / "out", "mnist", NpzOptions(split="part"))
    assert (report.train_samples, report.test_samples) == (20, 20)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 0.5, 2.0], "has 0.5 in row 1 (counted from 0); it must say train or test (0 or 1) of each sample"),
        ([1.0, np.nan], "has nan in row 1 (counted from 0); it must say train or test (0 or 1) of each sample"),
        ([0, 1, 2], "has 2 in row 2 (counted from 0); it must say train or test (0 or 1) of each sample"),
        (["val", "test"], "has 'val' in row 0 (counted from 0); it must say train or test (0 or 1) of each sample"),
    ],
)
def test_the_first_unknown_value_of_a_split_is_named(tmp_path, values, said):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y, client=CLIENT, part=np.resize(values, 40))
    with pytest.raises(UserError) as error:
        import_npz(path, tmp_path / "out", "mnist", NpzOptions(split="part"))
    assert str(error.value) == f"array 'part' of {path} {said}"


@pytest.mark.parametrize("part", [np.zeros(39), np.zeros((40, 1)), np.array("train")])
def test_a_split_of_another_length_is_refused(tmp_path, part):
    path = tmp_path / "a.npz"
    np.savez(path, x=X, y=Y, client=CLIENT, part=part)
    with pytest.raises(UserError) as error:
        import_npz(path, tmp_path / "out", "mnist", NpzOptions(split="part"))
    assert str(error.value) == (
        f"array 'part' of {path} must have a value for each of the 40 samples; its shape is {part.shape}"
    )


def test_partition_spreads_training_and_test_samples(tmp_path):
    path = tmp_path / "split.npz"
    np.savez(path, x_train=X[:30], y_train=Y[:30], x_test=X[30:], y_test=Y[30:])
    report = import_npz(path, tmp_path / "out", "mnist", NpzOptions(partition=Partition("iid", 5)))
    assert (report.clients, report.train_samples, report.test_samples) == (5, 30, 10)
    assert open_data_set(tmp_path / "out", "mnist").client_names == ["c1", "c2", "c3", "c4", "c5"]
    with pytest.raises(UserError, match="partition"):
        import_npz(path, tmp_path / "other", "mnist")


@pytest.mark.parametrize("split", [True, False])
def test_an_exact_number_of_samples_leaves_others_out(tmp_path, split):
    np.savez(
        tmp_path / "all.npz", x=X, y=Y, **({"part": np.where(np.arange(40) % 4, "train", "test")} if split else {})
    )
    partition = Partition("dirichlet", 3, samples_per_client=7)
    report = import_npz(
        tmp_path / "all.npz",
        tmp_path / "out",
        "mnist",
        NpzOptions(partition=partition, split="part" if split else None),
    )
    # a split of its own: 30 and 10; without, two of nine are held out of each
    trained, tested, left_out = (21, 10, 9) if split else (21, 6, 13)
    assert (report.train_samples, report.test_samples, report.left_out) == (trained, tested, left_out)
    data = open_data_set(tmp_path / "out", "mnist")
    assert data.train_sizes.tolist() == [7, 7, 7] and int(data.test_sizes.sum()) == tested
    assert len(list((tmp_path / "out").rglob("*.png"))) == 40 - left_out


def test_clients_of_the_source_are_grouped(npz, tmp_path):
    report = import_npz(npz, tmp_path / "out", "mnist", NpzOptions(partition=Partition("grouped", 2)))
    assert (report.clients, report.train_samples, report.test_samples) == (2, 32, 8)
    data = open_data_set(tmp_path / "out", "mnist")
    whose = {X[row].tobytes(): CLIENT[row] for row in range(40)}
    groups = [{int(whose[pixels]) for pixels in samples_of(data, number)} for number in (1, 2)]
    assert [len(group) for group in groups] == [2, 2] and set.union(*groups) == {3, 7, 10, 11}
    np.savez(tmp_path / "no.npz", x=X, y=Y)
    with pytest.raises(UserError, match="does not say whose its samples are"):
        import_npz(tmp_path / "no.npz", tmp_path / "other", "mnist", NpzOptions(partition=Partition("grouped", 2)))


@pytest.mark.parametrize("order", ["NHWC", "NCHW", "float"])
def test_orders_of_axes_and_floats(tmp_path, order):
    colour = np.stack([X[:8], X[8:16], X[16:24]], axis=1)
    samples = {"NCHW": colour, "NHWC": colour.transpose(0, 2, 3, 1), "float": colour.astype(np.float32) / 255}[order]
    np.savez(tmp_path / "c.npz", x=samples, y=Y[:8], client=CLIENT[:8])
    import_npz(tmp_path / "c.npz", tmp_path / "out", "own-data", NpzOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "out", "own-data")
    assert np.array_equal(data.x, colour) and data.num_classes == 8
    assert not (tmp_path / "out" / "client_data_mapping" / "test.csv").exists()


@pytest.mark.parametrize(
    ("shape", "read"),
    [
        ((3, 8, 3), "3 x 8 x 3, read as channels x height x width (3 of 8 x 3)"),
        ((1, 8, 3), "1 x 8 x 3, read as channels x height x width (1 of 8 x 3)"),
        ((3, 3, 3), "3 x 3 x 3, read as channels x height x width (3 of 3 x 3)"),
        ((3, 8, 8), None),
        ((8, 8, 3), None),
        ((8, 3), None),
    ],
)
def test_pictures_whose_channels_may_be_first_or_last_are_noted(tmp_path, shape, read):
    x = np.arange(8 * np.prod(shape)).reshape(8, *shape).astype(np.uint8)
    np.savez(tmp_path / "c.npz", x=x, y=Y[:8], client=CLIENT[:8])
    written = import_npz(tmp_path / "c.npz", tmp_path / "out", "own-data", NpzOptions(test_fraction=0.0))
    notes = [note for note in written.notes if "channels x height" in note]
    meant = "if the channels come last, save it anew as x.transpose(0, 3, 1, 2)"
    assert notes == ([] if read is None else [f"samples of array 'x' are {read}: {meant}"])
    if read is not None:
        assert np.array_equal(open_data_set(tmp_path / "out", "own-data").x, x)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"x": X, "z": Y}, "no arrays 'x' and 'y'"),
        ({"x": X.astype(np.int32), "y": Y, "client": CLIENT}, "bytes"),
        ({"x": X.astype(float), "y": Y, "client": CLIENT}, r"floats in 0\.\.1"),
        ({"x": X, "y": Y[:5], "client": CLIENT}, "differ in length: 40, 5 and 40 rows"),
        ({"x": X, "y": Y + 0.5, "client": CLIENT}, "integers"),
        ({"x": X, "y": Y + 60, "client": CLIENT}, "label 62, out of range"),
        ({"x": X[0], "y": Y, "client": CLIENT}, "must be images"),
        ({"x": X, "y": Y}, "whose its samples are: name the array that does with --client, or spread them"),
        ({"x": np.array([{}] * 40), "y": Y, "client": CLIENT}, "cannot be read"),
        ({"x": X[:0], "y": Y[:0], "client": CLIENT[:0]}, "no samples"),
    ],
)
def test_broken_npz_leaves_nothing_behind(tmp_path, arrays, said):
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(UserError, match=said):
        import_npz(tmp_path / "bad.npz", tmp_path / "out", "femnist")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.npz"]


@pytest.mark.parametrize("size", [(4, 32, 32), (32, 32, 4), (2, 32, 32), (3, 0, 32)])
def test_pictures_to_be_resized_have_one_or_three_channels(tmp_path, size):
    np.savez(tmp_path / "small.npz", x=np.zeros((4, *size), np.uint8), y=np.arange(4), client=np.arange(4))
    with pytest.raises(UserError, match=r"array 'x' of .* has shape .*: pictures have 1 or 3 channels"):
        import_npz(tmp_path / "small.npz", tmp_path / "out", "cifar10", NpzOptions(shape=(32, 32)))
    with pytest.raises(UserError, match="pictures have 1 or 3 channels"):
        list(read_inputs(tmp_path / "small.npz", "cifar10", (3, 32, 32)))


def test_what_is_no_npz_is_refused(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 nothing")
    for path, said in ((tmp_path / "bad.npz", "not an npz"), (tmp_path / "none.npz", "does not exist")):
        with pytest.raises(UserError, match=said):
            import_npz(path, tmp_path / "out", "femnist")


def test_second_time_is_done_and_other_settings_need_force(npz, tmp_path):
    out = tmp_path / "out"
    first = import_npz(npz, out, "femnist")
    again = import_npz(npz, out, "femnist")
    assert again.already_there and again.train_samples == first.train_samples
    with pytest.raises(UserError, match="--force"):
        import_npz(npz, out, "femnist", NpzOptions(seed=2))
    assert not import_npz(npz, out, "femnist", NpzOptions(seed=2, force=True)).already_there
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "some.npz"]


def test_two_imports_into_one_folder_at_once(npz, tmp_path):
    out = tmp_path / "new" / "out"
    sentence = f"another command is writing {out} at the moment: wait until it has ended, or name another folder"
    with sole_writer(out):
        with pytest.raises(UserError) as refused:
            import_npz(npz, out, "femnist")
        assert str(refused.value) == sentence
        with pytest.raises(UserError, match="another command"):
            import_npz(npz, out, "femnist", NpzOptions(force=True))
        with pytest.raises(UserError, match="another command"):
            synthesize("digits", out, writers=1)
        assert [path.name for path in out.parent.iterdir()] == [".out.lock"]
    assert not import_npz(npz, out, "femnist").already_there
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_an_import_that_waits_for_nobody_sees_what_another_wrote_meanwhile(npz, tmp_path, monkeypatch):
    out, locked = tmp_path / "out", importers.sole_writer

    def written_by_another(folder):
        monkeypatch.setattr(importers, "sole_writer", locked)
        import_npz(npz, out, "femnist")
        return locked(folder)

    monkeypatch.setattr(importers, "sole_writer", written_by_another)
    assert import_npz(npz, out, "femnist").already_there


def test_a_lock_whose_file_was_removed_is_none(tmp_path, monkeypatch):
    path, flock = tmp_path / ".out.lock", fcntl.flock

    def removed_by_its_holder(lock, how):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(lock, how)

    monkeypatch.setattr(fcntl, "flock", removed_by_its_holder)
    with sole_writer(tmp_path / "out"):
        assert path.exists()
        with pytest.raises(UserError, match="another command"), sole_writer(tmp_path / "out"):
            pass
    assert not path.exists()


def test_data_that_are_called_generated_stay_so(npz, tmp_path):
    written = import_npz(npz, tmp_path / "made", "femnist", NpzOptions(generated=True))
    assert written.generated and open_data_set(written.data_dir, "femnist").generated
    with pytest.raises(UserError, match="--force"):
        import_npz(npz, tmp_path / "made", "femnist")
    anew = import_layout(written.data_dir, tmp_path / "anew", "femnist", ImportOptions(partition=Partition("iid", 4)))
    assert anew.generated
    assert not import_npz(npz, tmp_path / "real", "femnist").generated
    options = ImportOptions(partition=Partition("iid", 4), generated=True)
    assert import_layout(tmp_path / "real", tmp_path / "called", "femnist", options).generated


def test_a_strange_folder_is_not_replaced(npz, tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not made by this command"):
        import_npz(npz, out, "femnist")
    monkeypatch.chdir(out)
    with pytest.raises(UserError, match="cannot be replaced"):
        import_npz(npz, tmp_path, "femnist", NpzOptions(force=True))
    assert (out / "thesis.txt").exists()


def test_a_folder_that_holds_the_source_is_not_replaced(npz, tmp_path):
    (tmp_path / "above").mkdir()
    npz = npz.rename(tmp_path / "above" / npz.name)
    (tmp_path / "link").symlink_to(tmp_path / "above")
    import_npz(npz, tmp_path / "above" / "data", "femnist")
    again = ImportOptions(partition=Partition("iid", 4), force=True)
    for out in ("above", "link"):
        with pytest.raises(UserError, match=r"holds the source .*some\.npz, which would be lost: name another folder"):
            import_npz(npz, tmp_path / out, "femnist", NpzOptions(force=True))
        for path in (tmp_path / "above/data", tmp_path / "link/data"):
            for inside in (tmp_path / out, tmp_path / out / "data"):
                with pytest.raises(UserError, match="which would be lost"):
                    import_layout(path, inside, "femnist", again)
    assert npz.exists() and open_data_set(tmp_path / "above/data", "femnist").num_clients == 4


def test_a_failing_forced_import_keeps_what_was_there(npz, tmp_path):
    out = tmp_path / "out"
    import_npz(npz, out, "femnist")
    before = open_data_set(out, "femnist").digest
    np.savez(npz, x=X, y=Y + 60, client=CLIENT)
    with pytest.raises(UserError):
        import_npz(npz, out, "femnist", NpzOptions(force=True))
    assert open_data_set(out, "femnist").digest == before


def leaf(users, first):
    data = {
        user: {"x": (X[first + 5 * n : first + 5 * n + 5].reshape(5, -1) / 255).tolist(), "y": [n, 1, 2, 3, 4]}
        for n, user in enumerate(users)
    }
    return json.dumps({"users": users, "num_samples": [5] * len(users), "user_data": data})


def test_what_a_killed_import_left_is_cleared_after_a_day(npz, tmp_path):
    names = (".out.unfinished-old", ".out.unfinished-new", ".out.original", ".other.unfinished-old")
    for name in names:
        (tmp_path / name).mkdir()
        if name != ".out.unfinished-new":
            os.utime(tmp_path / name, (0, 0))
    import_npz(npz, tmp_path / "out", "femnist")
    assert [name for name in names if (tmp_path / name).exists()] == list(names[1:])
    assert len(list(tmp_path.glob(".out.*"))) == 2


def test_leaf_json(tmp_path):
    (tmp_path / "all.json").write_text(leaf(["f1", "f2"], 0))
    report = import_leaf(tmp_path / "all.json", tmp_path / "out")
    assert (report.clients, report.train_samples, report.test_samples) == (2, 8, 2)
    data = open_data_set(tmp_path / "out", "femnist")
    assert set(samples_of(data, 2)) == {X[row].tobytes() for row in range(5, 10)}
    for part, first in (("train", 0), ("test", 10)):
        (tmp_path / "leaf" / part).mkdir(parents=True)
        (tmp_path / "leaf" / part / "all_data_0.json").write_text(leaf(["f1", "f2"], first))
    report = import_leaf(tmp_path / "leaf", tmp_path / "split")
    assert (report.train_samples, report.test_samples) == (10, 10)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not LEAF"),
        ('{"users": ["a"]}', "not LEAF"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1, 0, 0]], "y": [1]}}}', "no square"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1, 0, 0, 2]], "y": [1]}}}', r"0\.\.1"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1, 0], [1]], "y": [1, 2]}}}', "list of numbers"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [0], [1], [1]], "y": [1, 2]}}}', "4 samples x and 2 labels"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1], [0]], "y": []}}}', "2 samples x and 0 labels"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[1, 0, 0, 1]], "y": ["b"]}}}', "integers"),
    ],
)
def test_broken_leaf_json(tmp_path, content, said):
    (tmp_path / "all.json").write_text(content)
    with pytest.raises(UserError, match=said):
        import_leaf(tmp_path / "all.json", tmp_path / "out")


def png(pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "one.png")
    return (tmp_path / "one.png").read_bytes()


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    images = [{"bytes": png(X[n], tmp_path), "path": None} for n in range(10)]
    table = {
        "image": images,
        "writer_id": ["f0"] * 5 + ["f1"] * 5,
        "hsf_id": [0] * 10,
        "character": list(range(52, 62)),
    }
    parquet.write_table(arrow.table(table), tmp_path / "train-00000.parquet")
    report = import_parquet(tmp_path / "train-00000.parquet", tmp_path / "out")
    assert (report.clients, report.train_samples, report.test_samples) == (2, 8, 2)
    data = open_data_set(tmp_path / "out", "femnist")
    assert samples_of(data, 2) == {X[n].tobytes(): 52 + n for n in range(5, 10)}
    parquet.write_table(arrow.table(table | {"writer_id": [0] * 5 + [1] * 5}), tmp_path / "numbers.parquet")
    assert import_parquet(tmp_path / "numbers.parquet", tmp_path / "numbers").clients == 2
    parquet.write_table(arrow.table({"image": images}), tmp_path / "bad.parquet")
    with pytest.raises(UserError, match="lacks the column character, writer_id"):
        import_parquet(tmp_path / "bad.parquet", tmp_path / "bad")
    (tmp_path / "bad.parquet").write_text("PAR1 no")
    with pytest.raises(UserError, match="cannot be read as parquet"):
        import_parquet(tmp_path / "bad.parquet", tmp_path / "bad")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(UserError, match="pip install pyarrow"):
        import_parquet(tmp_path / "a.parquet", tmp_path / "out")


def test_folders_of_clients_and_labels(tmp_path):
    for n in range(12):
        folder = tmp_path / "tree" / f"w{n % 2}" / "AB9"[n % 3]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(X[n]).save(folder / f"{n}.png")
    report = import_folder(tmp_path / "tree", tmp_path / "out", "femnist")
    assert (report.clients, report.train_samples, report.test_samples) == (2, 10, 2)
    data = open_data_set(tmp_path / "out", "femnist")
    assert samples_of(data, 1) == {X[n].tobytes(): (10, 11, 9)[n % 3] for n in range(0, 12, 2)}
    partition = Partition("dirichlet", 3)
    report = import_folder(tmp_path / "tree" / "w0", tmp_path / "p", "own", ImportOptions(partition=partition))
    assert (report.clients, report.classes, report.shape) == (3, 3, (1, 28, 28))
    with pytest.raises(UserError, match="client/label"):
        import_folder(tmp_path / "tree" / "w0", tmp_path / "q", "own")
    broken = tmp_path / "tree" / "w1" / "A" / "3.png"
    broken.write_bytes(b"\x89PNG")
    with pytest.raises(UserError, match=r"3\.png cannot be decoded"):
        import_folder(tmp_path / "tree", tmp_path / "q", "femnist")


@pytest.mark.parametrize("name", [b"cl\xe9/p.png", b"a/p\xe9.png"])
def test_names_that_are_not_utf_8_are_refused(tmp_path, name):
    path = tmp_path / "tree" / "w0" / os.fsdecode(name)
    path.parent.mkdir(parents=True)
    Image.fromarray(X[0]).save(path)
    with pytest.raises(UserError, match=r"tree/w0/.*\\udce9.*' is not UTF-8: rename it"):
        import_folder(tmp_path / "tree", tmp_path / "out", "own")


def test_real_writers_give_twelve_test_samples_each(shared_data, tmp_path):
    report = import_npz(
        shared_data / "chars74k_55writers.npz", tmp_path / "out", "femnist", NpzOptions(name="chars74k")
    )
    data = open_data_set(report.data_dir, "femnist")
    assert data.num_clients == 55 and set(data.test_sizes) == {12} and set(data.train_sizes) == {50}
    original = np.load(shared_data / "chars74k_55writers.npz")
    mask = original["client"] == 0
    assert set(samples_of(data, 1)) == {image.tobytes() for image in original["x"][mask]}
