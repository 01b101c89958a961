"""SVHN, STL-10, UniMiB SHAR and Fashion-MNIST in small trees of their published layouts."""

import gzip
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_idx, import_npz, import_stl10, import_svhn, import_unimib
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.layout.verify import verify
from fedscale_ext.data.store import DataSet, open_data_set

RNG = np.random.default_rng(5)
IID = Partition("iid", 4)


def seen(data: DataSet, rows: np.ndarray) -> dict[bytes, int]:
    return {data.x[row].tobytes(): int(data.y[row]) for row in rows}


def expected(x: np.ndarray, y: np.ndarray) -> dict[bytes, int]:
    return {image.tobytes(): int(label) for image, label in zip(x, y, strict=True)}


# ---- SVHN: X [32, 32, 3, N], y [N, 1] from 1 to 10, which is the digit 0 ----

DIGITS = RNG.integers(0, 256, (60, 3, 32, 32), dtype=np.uint8)


def svhn(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for part, rows in (("train", slice(0, 40)), ("test", slice(40, 60))):
        y = (np.arange(60) % 10)[rows]
        y = np.where(y == 0, 10, y).astype(np.uint8)[:, None]
        held = {"X": DIGITS[rows].transpose(2, 3, 1, 0), "y": y}
        scipy.io.savemat(folder / f"{part}_32x32.mat", held, do_compression=True)
    return folder


def test_svhn_keeps_its_split_and_ten_is_zero(tmp_path: Path) -> None:
    written = import_svhn(svhn(tmp_path / "svhn"), tmp_path / "out", options=ImportOptions(partition=IID))
    assert (written.clients, written.train_samples, written.test_samples, written.classes) == (4, 40, 20, 10)
    data = open_data_set(tmp_path / "out", "svhn")
    assert seen(data, data.train.rows) == expected(DIGITS[:40], np.arange(40) % 10)
    assert seen(data, data.test.rows) == expected(DIGITS[40:], np.arange(40, 60) % 10)
    assert data.batch([0]).min() >= -1 and data.batch([0]).max() <= 1
    (tmp_path / "svhn" / "extra_32x32.mat").write_bytes(b"is not read")
    assert import_svhn(tmp_path / "svhn", tmp_path / "out", options=ImportOptions(partition=IID)).already_there


def write_svhn(root: Path, **held: np.ndarray) -> None:
    scipy.io.savemat(root / "test_32x32.mat", held)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda root: write_svhn(root, X=DIGITS, y=np.ones((60, 1))), r"not SVHN: X has shape \(60, 3, 32, 32\)"),
        (lambda root: write_svhn(root, X=np.zeros((32, 32, 3, 2)), y=np.ones((2, 1))), "is not SVHN"),
        (lambda root: write_svhn(root, X=np.zeros((32, 32, 3, 2), "u1"), y=np.array([[1], [11]])), "digits 1 to 10"),
        (lambda root: write_svhn(root, X=np.zeros((32, 32, 3, 2), "u1")), "has no array y"),
        (lambda root: (root / "test_32x32.mat").unlink(), r"test_32x32\.mat cannot be read"),
        (lambda root: (root / "train_32x32.mat").unlink(), r"holds no SVHN: it must have the file train_32x32\.mat"),
    ],
)
def test_broken_svhn_is_one_sentence(tmp_path: Path, break_it, said: str) -> None:
    root = svhn(tmp_path / "svhn")
    break_it(root)
    with pytest.raises(UserError, match=said):
        import_svhn(root, tmp_path / "out", options=ImportOptions(partition=IID))
    assert not (tmp_path / "out").exists()


# ---- STL-10: pictures by channel and column, labels from 1 ----

PHOTOS = RNG.integers(0, 256, (16, 3, 96, 96), dtype=np.uint8)


def stl10(root: Path) -> Path:
    folder = root / "stl10_binary"
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, 10)), ("test", slice(10, 16))):
        (folder / f"{part}_X.bin").write_bytes(PHOTOS[rows].transpose(0, 1, 3, 2).tobytes())
        (folder / f"{part}_y.bin").write_bytes((np.arange(16)[rows] % 10 + 1).astype(np.uint8).tobytes())
    (folder / "unlabeled_X.bin").write_bytes(b"is not read")
    return root


def test_stl10_keeps_its_split_and_pictures_stand_upright(tmp_path: Path) -> None:
    written = import_stl10(stl10(tmp_path / "in"), tmp_path / "out", options=ImportOptions(partition=IID))
    assert (written.train_samples, written.test_samples, written.shape) == (10, 6, (3, 96, 96))
    data = open_data_set(tmp_path / "out", "stl10")
    assert seen(data, data.train.rows) == expected(PHOTOS[:10], np.arange(10))
    assert seen(data, data.test.rows) == expected(PHOTOS[10:], np.arange(10, 16) % 10)
    assert ",truck,9" in (tmp_path / "out" / "client_data_mapping" / "train.csv").read_text()
    (tmp_path / "in" / "stl10_binary" / "unlabeled_X.bin").unlink()
    assert import_stl10(tmp_path / "in", tmp_path / "out", options=ImportOptions(partition=IID)).already_there


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("train_y.bin", b"\0" * 10, r"train_y\.bin holds no labels"),
        ("train_y.bin", b"\x0b" * 10, r"train_y\.bin holds no labels"),
        ("test_y.bin", b"", r"test_y\.bin holds no labels"),
        ("test_y.bin", b"\1" * 5, r"test_X\.bin has 165,888 bytes, not 5 pictures of 27,648"),
        ("test_X.bin", None, r"test_X\.bin cannot be read \(No such file"),
        ("train_X.bin", None, r"holds no STL-10 binary: it must have the file train_X\.bin"),
    ],
)
def test_broken_stl10_is_one_sentence(tmp_path: Path, name: str, content: bytes | None, said: str) -> None:
    path = stl10(tmp_path) / "stl10_binary" / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UserError, match=said):
        import_stl10(tmp_path, tmp_path / "out", options=ImportOptions(partition=IID))


# ---- UniMiB SHAR: rows of x, y and z, 151 times each; labels are the fall, the subject, the trial ----

WINDOWS = RNG.normal(0, 9, (240, 3, 151)).astype(np.float16)
KIND, SUBJECT = np.arange(240) % 8, np.arange(240) // 8 % 30


def unimib(root: Path) -> Path:
    folder = root / "UniMiB-SHAR" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.stack([KIND + 1, SUBJECT + 1, np.ones(240)], axis=1).astype(np.uint8)
    scipy.io.savemat(folder / "fall_data.mat", {"fall_data": WINDOWS.reshape(240, 453).astype(float)})
    scipy.io.savemat(folder / "fall_labels.mat", {"fall_labels": labels}, do_compression=True)
    return root


def test_unimibs_clients_are_its_subjects(tmp_path: Path) -> None:
    written = import_unimib(unimib(tmp_path / "in"), tmp_path / "out", options=ImportOptions(test_fraction=0.25))
    assert (written.clients, written.train_samples, written.test_samples) == (30, 180, 60)
    assert (written.classes, written.shape) == (8, (1, 18, 25))
    data = open_data_set(tmp_path / "out", "unimib_shar")
    assert data.client_names == [str(number) for number in range(1, 31)]
    for client in (1, 17, 30):
        rows = np.concatenate([data.train_rows(client), data.test_rows(client)])
        windows = WINDOWS[client - 1 == SUBJECT][:, :, :150].reshape(-1, 1, 18, 25)
        assert seen(data, rows) == expected(windows, KIND[client - 1 == SUBJECT])
    x = data.x[0].astype(np.float32)
    assert np.allclose(data.batch([0]).numpy()[0], x / 9.81, atol=1e-6)
    assert verify(tmp_path / "out", "unimib_shar").ok


def test_unimib_along_time_has_three_channels(tmp_path: Path) -> None:
    import_unimib(unimib(tmp_path / "in") / "UniMiB-SHAR", tmp_path / "out", options=ImportOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "out", "unimib_shar", test_split=0.0, input_shape=(3, 1, 150))
    assert data.input_shape == (3, 1, 150)
    assert {row.tobytes() for row in data.x} == {row.tobytes() for row in WINDOWS[:, :, None, :150]}


def test_unimib_with_hypemefeds_clients(tmp_path: Path) -> None:
    spread = Partition("dirichlet", 6, 0.5, min_samples=24)
    import_unimib(unimib(tmp_path / "in"), tmp_path / "out", options=ImportOptions(partition=spread))
    data = open_data_set(tmp_path / "out", "unimib_shar")
    assert data.num_clients == 6 and (data.train_sizes + data.test_sizes).min() >= 24


def write_labels(root: Path, labels: np.ndarray) -> None:
    scipy.io.savemat(root / "UniMiB-SHAR/data/fall_labels.mat", {"fall_labels": labels})


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda root: write_labels(root, np.ones((239, 3))), r"fall_labels \(239, 3\), not \[N, 453\] and \[N, 3\]"),
        (lambda root: write_labels(root, np.ones((240, 2))), "is not UniMiB SHAR"),
        (lambda root: write_labels(root, np.full((240, 3), 9)), r"fall_labels\.mat has kinds of falls beyond 1 to 8"),
        (lambda root: os.remove(root / "UniMiB-SHAR/data/fall_labels.mat"), r"fall_labels\.mat cannot be read"),
        (lambda root: os.remove(root / "UniMiB-SHAR/data/fall_data.mat"), "holds no UniMiB SHAR"),
    ],
)
def test_broken_unimib_is_one_sentence(tmp_path: Path, break_it, said: str) -> None:
    root = unimib(tmp_path / "in")
    break_it(root)
    with pytest.raises(UserError, match=said):
        import_unimib(root, tmp_path / "out")


def test_unimib_is_no_pictures(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="are pictures, but these are sounds or values"):
        import_unimib(unimib(tmp_path / "in"), tmp_path / "out", "femnist")


# ---- idx ----

CLOTHES = RNG.integers(0, 256, (50, 28, 28), dtype=np.uint8)


def idx(folder: Path, packed: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for part, rows in (("train", slice(0, 30)), ("t10k", slice(30, 50))):
        x, y = CLOTHES[rows], (np.arange(50) % 10).astype(np.uint8)[rows]
        for what, array in (("images-idx3", x), ("labels-idx1", y)):
            head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
            name = f"{part}-{what}-ubyte{'.gz' if packed else ''}"
            content = head + array.tobytes()
            (folder / name).write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return folder


@pytest.mark.parametrize(("folder", "packed"), [("", True), ("FashionMNIST/raw", True), ("FashionMNIST/raw", False)])
def test_idx_files_keep_their_split(tmp_path: Path, folder: str, packed: bool) -> None:
    idx(tmp_path / "in" / folder, packed)
    import_idx(tmp_path / "in", tmp_path / "out", "fashionmnist", ImportOptions(partition=IID))
    data = open_data_set(tmp_path / "out", "fashionmnist")
    assert seen(data, data.train.rows) == expected(CLOTHES[:30], np.arange(30) % 10)
    assert seen(data, data.test.rows) == expected(CLOTHES[30:], np.arange(30, 50) % 10)


def test_of_several_idx_folders_the_data_set_tells_which(tmp_path: Path) -> None:
    idx(tmp_path / "FashionMNIST/raw")
    options = ImportOptions(partition=IID)
    for data_set in ("mnist", "emnist"):
        with pytest.raises(UserError, match=f"holds 'fashionmnist' and not {data_set}"):
            import_idx(tmp_path, tmp_path / "out", data_set, options)
    with pytest.raises(UserError, match="holds 'fashionmnist' and not mnist"):
        import_idx(tmp_path / "FashionMNIST", tmp_path / "out", "mnist", options)
    assert import_idx(tmp_path, tmp_path / "mine", "clothes", options).train_samples == 30
    idx(tmp_path / "MNIST/raw")
    for path in (tmp_path / "MNIST/raw").glob("*labels*"):
        data = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(data[:8] + data[8:].replace(b"\x09", b"\x08")))
    import_idx(tmp_path, tmp_path / "digits", "MNIST", options)
    assert 9 not in open_data_set(tmp_path / "digits", "mnist").y
    import_idx(tmp_path, tmp_path / "fashion", "fashionmnist", options)
    assert 9 in open_data_set(tmp_path / "fashion", "fashionmnist").y
    with pytest.raises(UserError, match="does not tell which files are clothes"):
        import_idx(tmp_path, tmp_path / "out", "clothes", options)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1], "which is not what follows"),
        (lambda data: data + b"\0", "which is not what follows"),
        (lambda data: b"\0\0\x0d\x03" + data[4:], "does not begin as bytes of 3 axes do"),
        (lambda data: data[:4] + b"\xff" * 12 + data[16:], r"claims the shape \[4294967295"),
        (lambda data: data[:6], "it is cut off"),
        (lambda data: data[:4] + struct.pack(">III", 10, 56, 28) + data[16:], "10 pictures and 20 labels in t10k"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_broken_idx_is_one_sentence(tmp_path: Path, change, said: str, packed: bool) -> None:
    folder = idx(tmp_path / "in", packed)
    path = folder / f"t10k-images-idx3-ubyte{'.gz' if packed else ''}"
    data = change(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(UserError, match=said):
        import_idx(folder, tmp_path / "out", "fashionmnist", ImportOptions(partition=IID))


def test_a_damaged_gzip_is_one_sentence(tmp_path: Path) -> None:
    folder = idx(tmp_path / "in")
    path = folder / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    for data in (
        whole[:-9],
        whole[:2000],
        whole[:50] + b"\xff" * 50 + whole[100:],
        b"no gzip",
        b"",
        whole[:-3] + b"abc",
    ):
        path.write_bytes(data)
        with pytest.raises(UserError, match="no idx file as expected"):
            import_idx(folder, tmp_path / "out", "fashionmnist", ImportOptions(partition=IID))


# ---- test samples of a client's own, and other shapes of values ----


def test_local_tests_set_the_split_aside(tmp_path: Path) -> None:
    spread = Partition("dirichlet", 3, 0.3, min_samples=8)
    official = import_svhn(svhn(tmp_path / "svhn"), tmp_path / "kept", options=ImportOptions(partition=spread))
    options = ImportOptions(partition=spread, local_test=True, test_fraction=0.25)
    local = import_svhn(tmp_path / "svhn", tmp_path / "local", options=options)
    assert official.test_samples == 20 and local.train_samples + local.test_samples == 60
    data = open_data_set(tmp_path / "local", "svhn")
    everyone = np.concatenate([data.train.rows, data.test.rows])
    assert seen(data, everyone) == expected(DIGITS, np.arange(60) % 10)
    for client in range(1, 4):
        train = np.bincount(data.y[data.train_rows(client)], minlength=10)
        test = np.bincount(data.y[data.test_rows(client)], minlength=10)
        assert train.sum() + test.sum() >= 8 and abs(test.sum() - (train + test).sum() / 4) <= 0.5
        assert np.abs(test - (train + test) / 4).max() <= 1
    assert import_svhn(tmp_path / "svhn", tmp_path / "local", options=options).already_there
    again = import_svhn(tmp_path / "svhn", tmp_path / "again", options=options)
    csv = "client_data_mapping/test.csv"
    assert (again.data_dir / csv).read_bytes() == (local.data_dir / csv).read_bytes()
    import_svhn(tmp_path / "svhn", tmp_path / "other", options=replace(options, seed=2))
    assert (tmp_path / "other" / csv).read_bytes() != (local.data_dir / csv).read_bytes()
    with pytest.raises(UserError, match="other settings"):
        import_svhn(tmp_path / "svhn", tmp_path / "local", options=ImportOptions(partition=spread, test_fraction=0.25))


def test_local_tests_of_natural_clients_have_their_own_mix(tmp_path: Path) -> None:
    x = RNG.normal(0, 1, (240, 9, 128)).astype(np.float16)
    who, y = np.repeat(np.arange(4), 60), np.tile(np.repeat(np.arange(6), 10), 4)
    split = {"x_train": x[:200], "y_train": y[:200], "c_train": who[:200]}
    np.savez(tmp_path / "har.npz", **split, x_test=x[200:], y_test=y[200:], c_test=who[200:])
    import_npz(tmp_path / "har.npz", tmp_path / "out", "uci_har", NpzOptions(local_test=True))
    data = open_data_set(tmp_path / "out", "uci_har")
    for client in range(1, 5):
        assert np.bincount(data.y[data.test_rows(client)], minlength=6).tolist() == [2] * 6


def test_windows_come_along_time_when_asked_for(tmp_path: Path) -> None:
    x = RNG.normal(0, 1, (20, 9, 128)).astype(np.float16)
    np.savez(tmp_path / "har.npz", x=x, y=np.arange(20) % 6, client=np.arange(20) // 10)
    import_npz(tmp_path / "har.npz", tmp_path / "out", "uci_har", NpzOptions(test_fraction=0.0))
    usual = open_data_set(tmp_path / "out", "uci_har", test_split=0.0)
    along = open_data_set(tmp_path / "out", "uci_har", test_split=0.0, input_shape=(9, 1, 128))
    assert usual.input_shape == (1, 9, 128) and along.input_shape == (9, 1, 128)
    assert np.array_equal(along.x[:, :, 0], x) and np.array_equal(along.batch([3]).numpy()[0, :, 0], x[3])
    for shape in [(9, 1, 127), (2, 9, 128), (0, 9, 128)]:
        with pytest.raises(UserError, match=r"cannot be resized to|is not possible"):
            open_data_set(tmp_path / "out", "uci_har", input_shape=shape)
