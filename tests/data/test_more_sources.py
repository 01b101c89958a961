"""CIFAR's binary files, sensor windows, OpenImage's layout, and folders that get other clients."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.decoding.cache import FOLDER
from fedscale_ext.data.importing.importers import (
    import_cifar,
    import_folder,
    import_layout,
    import_leaf,
    import_npz,
    import_parquet,
)
from fedscale_ext.data.importing.options import ImportOptions, NpzOptions
from fedscale_ext.data.importing.partition import Partition
from fedscale_ext.data.store import open_data_set
from fedscale_ext.data.synthetic.synthesize import synthesize

from .conftest import HEADER

PICTURES = np.random.default_rng(3).integers(0, 256, (60, 3072), dtype=np.uint8)
IID = Partition("iid", 5)


def cifar10(root: Path) -> Path:
    """Five training batches and a test batch of ten pictures each; picture n has label n % 10."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for number in range(6):
        name = f"data_batch_{number + 1}.bin" if number < 5 else "test_batch.bin"
        rows = [bytes([n % 10]) + PICTURES[n].tobytes() for n in range(10 * number, 10 * number + 10)]
        (folder / name).write_bytes(b"".join(rows))
    return root


def test_cifar10_keeps_its_split(tmp_path: Path) -> None:
    root = cifar10(tmp_path / "downloads")
    written = import_cifar(root, tmp_path / "out", "cifar10", ImportOptions(partition=IID))
    assert (written.clients, written.train_samples, written.test_samples) == (5, 50, 10)
    data = open_data_set(tmp_path / "out", "cifar10")
    labels = {data.x[row].tobytes(): int(data.y[row]) for row in data.train.rows}
    assert labels == {PICTURES[n].tobytes(): n % 10 for n in range(50)}
    assert {data.x[row].tobytes() for row in data.test.rows} == {PICTURES[n].tobytes() for n in range(50, 60)}
    inside = import_cifar(root / "cifar-10-batches-bin", tmp_path / "b", "cifar10", ImportOptions(partition=IID))
    assert inside.train_samples == 50


def cifar100(root: Path) -> Path:
    """A training file of 40 pictures and a test file of ten; picture n has the fine label 99 - n."""
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for name, rows in (("train", range(40)), ("test", range(40, 50))):
        content = b"".join(bytes([n % 20, 99 - n]) + PICTURES[n].tobytes() for n in rows)
        (folder / f"{name}.bin").write_bytes(content)
    return folder


def test_of_both_cifars_the_data_set_tells_which(tmp_path: Path) -> None:
    root, options = cifar10(tmp_path / "in"), ImportOptions(partition=IID)
    with pytest.raises(UserError, match="holds 'cifar10' and not cifar100"):
        import_cifar(root, tmp_path / "out", "cifar100", options)
    (root / "cifar-100-python").mkdir()
    with pytest.raises(UserError, match="cifar-100-python, whose files are pickles"):
        import_cifar(root, tmp_path / "out", "cifar100", options)
    cifar100(root)
    assert import_cifar(root, tmp_path / "a", "cifar100", options).train_samples == 40
    assert import_cifar(root, tmp_path / "b", "CIFAR10", options).train_samples == 50
    with pytest.raises(UserError, match="does not tell which files are photos"):
        import_cifar(root, tmp_path / "out", "photos", options)
    with pytest.raises(UserError, match="holds 'cifar10', 'cifar100' and not svhn"):
        import_cifar(root, tmp_path / "out", "svhn", options)


def test_cifar100_has_fine_labels(tmp_path: Path) -> None:
    folder = cifar100(tmp_path)
    import_cifar(folder, tmp_path / "out", "cifar100", ImportOptions(partition=IID))
    data = open_data_set(tmp_path / "out", "cifar100")
    assert sorted(data.y) == sorted(99 - n for n in range(50)) and data.num_classes == 100


def cut(root: Path) -> None:
    path = root / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])


def relabel(root: Path) -> None:
    path = root / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(bytes([77]) + path.read_bytes()[1:])


def pickled(root: Path) -> None:
    (root / "cifar-10-batches-bin").rename(root / "cifar-10-batches-py")


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (cut, "data_batch_3.bin is no whole number of pictures"),
        (relabel, r"picture \d+ \(counted from 0\) of .*\.bin has label 77, out of range for cifar10"),
        (pickled, "are pickles and are not read: get the binary version"),
        (lambda root: (root / "cifar-10-batches-bin" / "test_batch.bin").unlink(), "test_batch.bin cannot be read"),
        (lambda root: (root / "cifar-10-batches-bin").rename(root / "other"), "holds no CIFAR"),
        (lambda root: (root / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b""), "no whole number"),
    ],
)
def test_broken_cifar_is_one_sentence(tmp_path: Path, break_it, said: str) -> None:
    root = cifar10(tmp_path / "downloads")
    break_it(root)
    with pytest.raises(UserError, match=said):
        import_cifar(root, tmp_path / "out", "cifar10", ImportOptions(partition=IID))
    assert not (tmp_path / "out").exists()


def test_cifar_needs_a_partition(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="or spread them with --partition dirichlet"):
        import_cifar(cifar10(tmp_path / "downloads"), tmp_path / "out", "cifar10")


# ---- whose test samples ----


def test_tests_follow_each_clients_own_classes(tmp_path: Path) -> None:
    x = np.random.default_rng(1).integers(0, 256, (900, 28, 28), dtype=np.uint8)
    y = np.arange(900) % 10
    split = np.where(np.arange(900) < 600, "train", "test")
    np.savez(tmp_path / "a.npz", x=x, y=y, split=split)
    two = Partition("classes", 20, classes_per_client=2)
    import_npz(tmp_path / "a.npz", tmp_path / "kept", "mnist", NpzOptions(split="split", partition=two))
    import_npz(tmp_path / "a.npz", tmp_path / "drawn", "mnist", NpzOptions(partition=two, test_fraction=1 / 3))
    for folder, samples in (("kept", 600), ("drawn", 600)):
        data = open_data_set(tmp_path / folder, "mnist")
        assert len(data.train.rows) == samples and data.num_clients == 20
        for client in range(1, 21):
            train = np.bincount(data.y[data.train_rows(client)], minlength=10)
            test = np.bincount(data.y[data.test_rows(client)], minlength=10)
            assert (train > 0).sum() == 2 and np.abs(test - train / 2).max() <= 1


def test_leaf_users_are_set_aside_by_a_partition(tmp_path: Path) -> None:
    users = {name: {"x": [[0.5] * 16] * 10, "y": list(range(10))} for name in ("a", "b")}
    (tmp_path / "all.json").write_text(json.dumps({"users": list(users), "user_data": users}))
    written = import_leaf(
        tmp_path / "all.json", tmp_path / "out", "tiny", ImportOptions(partition=Partition("dirichlet", 4, 0.5))
    )
    assert (written.clients, written.train_samples + written.test_samples) == (4, 20)


# ---- what cannot be is said before anything is written ----


def npz_source(root: Path) -> Path:
    x, y = PICTURES[:, :784].reshape(-1, 28, 28), np.arange(60) % 10
    np.savez(root / "a.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    return root / "a.npz"


def folder_source(root: Path) -> Path:
    for number in range(20):
        (root / "tree" / str(number % 2)).mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), number).save(root / "tree" / str(number % 2) / f"{number}.png")
    return root / "tree"


def layout_source(root: Path) -> Path:
    import_npz(npz_source(root), root / "there", "own", NpzOptions(partition=IID))
    return root / "there"


def parquet_source(root: Path) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    picture = (folder_source(root) / "0" / "0.png").read_bytes()
    rows = {"image": [{"bytes": picture}] * 9, "writer_id": ["a"] * 9, "character": list(range(9))}
    parquet.write_table(arrow.table(rows), root / "a.parquet")
    return root / "a.parquet"


SOURCES = {
    import_npz: npz_source, import_cifar: cifar10, import_folder: folder_source, import_layout: layout_source,
    import_parquet: parquet_source,
}  # fmt: skip


@pytest.mark.parametrize("importer", SOURCES)
@pytest.mark.parametrize(
    ("partition", "said"),
    [(Partition("shard", 100), "ask for fewer clients"), (Partition("classes", 2, classes_per_client=63), "63 of")],
)
def test_a_partition_is_refused_before_samples_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importer, partition: Partition, said: str
) -> None:
    source, written = SOURCES[importer](tmp_path), []
    monkeypatch.setattr("fedscale_ext.data.importing.writer.write_sample", lambda path, x: written.append(path))
    with pytest.raises(UserError, match=said):
        importer(source, tmp_path / "out", "own", NpzOptions(partition=partition))
    assert written == []


def test_a_test_fraction_is_refused_before_samples_are_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="test fraction must be"):
        import_folder(tmp_path, tmp_path / "out", "own", ImportOptions(test_fraction=1.5))


# ---- a folder in FedScale's layout anew ----


def test_generated_handwriting_gets_dirichlet_clients_and_stays_generated(tmp_path: Path) -> None:
    synthesize("femnist", tmp_path / "gen", writers=3, samples_per_class=1)
    before = open_data_set(tmp_path / "gen", "femnist")
    options = ImportOptions(partition=Partition("dirichlet", 6, 0.1))
    written = import_layout(tmp_path / "gen", tmp_path / "out", "femnist", options)
    assert written.generated and written.clients == 6 and written.name == before.name
    data = open_data_set(tmp_path / "out", "femnist")
    assert data.generated and data.num_classes == 62
    assert sorted(data.x[row].tobytes() for row in data.test.rows) == sorted(
        before.x[row].tobytes() for row in before.test.rows
    )
    (tmp_path / "gen" / FOLDER / "more").mkdir()
    (tmp_path / "gen" / FOLDER / "more" / "file").write_text("what is decoded is no part of the source")
    assert import_layout(tmp_path / "gen", tmp_path / "out", "femnist", options).already_there


def test_open_image_of_any_size_is_resized(tmp_path: Path) -> None:
    folder = tmp_path / "openimage"
    (folder / "client_data_mapping").mkdir(parents=True)
    sizes = {"train": [(90, 70), (64, 64), (33, 200), (256, 256)], "test": [(10, 300)]}
    for split, shapes in sizes.items():
        (folder / split).mkdir()
        lines = [HEADER]
        for number, (width, height) in enumerate(shapes):
            mode = "RGB" if number != 1 else "L"
            Image.new(mode, (width, height), 100 if mode == "L" else (10, 100, 200)).save(
                folder / split / f"{number}.jpg"
            )
            lines.append(f"{number // 2},{number}.jpg,Cat,{595 - number}")
        (folder / "client_data_mapping" / f"{split}.csv").write_text("\n".join(lines) + "\n")
    data = open_data_set(folder, "openimage")
    assert data.x.shape == (5, 3, 64, 64) and data.num_classes == 596
    assert np.abs(data.x[0].astype(int).mean((1, 2)) - [10, 100, 200]).max() < 4
    assert np.array_equal(data.batch([0, 4]), data.batch([0, 4]))
    assert open_data_set(folder, "openimage", input_shape=(3, 96, 96)).input_shape == (3, 96, 96)
    csv = folder / "client_data_mapping" / "train.csv"
    csv.write_text(csv.read_text().replace(",595", ",596"))
    with pytest.raises(UserError, match="596 is out of range"):
        open_data_set(folder, "openimage")


@pytest.mark.parametrize("scale", [1, 255])  # depths in 0..1 as they are published, or pictures
def test_depth_images_by_device(tmp_path: Path, scale: int) -> None:
    y = np.arange(60) % 5
    x = np.ones((60, 36, 36)) * (y[:, None, None] / 5) * scale
    np.savez(
        tmp_path / "depth.npz", x=x.astype(np.float32 if scale == 1 else np.uint8), y=y, client=np.arange(60) // 20
    )
    import_npz(tmp_path / "depth.npz", tmp_path / "out", "depth_har", NpzOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "out", "depth_har", input_shape=(1, 32, 32), test_split=0.0)
    assert data.input_shape == (1, 32, 32) and data.num_classes == 5
    inputs = data.batch(range(60)).numpy()
    assert np.allclose(inputs, 2 * data.y[:, None, None, None] / 5 - 1, atol=0.01)
    assert len(set(data.y.tolist())) == 5


# ---- values ----


def test_sensor_windows_are_kept_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(1).normal(0, 1, (40, 9, 128)).astype(np.float16)
    y, who = np.arange(40) % 6, np.arange(40) // 10
    np.savez(tmp_path / "har.npz", x=x, y=y, client=who)
    import_npz(tmp_path / "har.npz", tmp_path / "out", "uci_har", NpzOptions(test_fraction=0.0))
    data = open_data_set(tmp_path / "out", "uci_har", test_split=0.0)
    assert data.input_shape == (1, 9, 128) and data.num_classes == 6 and data.x.dtype == np.float16
    assert np.array_equal(data.x[:, 0], x) and np.array_equal(data.batch([3]).numpy()[0, 0], x[3].astype(np.float32))
    np.savez(tmp_path / "odd.npz", x=np.where(np.arange(40) == 7, np.inf, 0)[:, None, None] + x, y=y, client=who)
    with pytest.raises(UserError, match="not finite"):
        import_npz(tmp_path / "odd.npz", tmp_path / "no", "uci_har")
    with pytest.raises(UserError, match="scale them, and mend what is not finite"):
        import_npz(tmp_path / "har.npz", tmp_path / "no", "femnist")


def test_pictures_are_no_values(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a" / "0").mkdir(parents=True)
    Image.new("L", (128, 9)).save(tmp_path / "tree" / "a" / "0" / "1.png")
    with pytest.raises(UserError, match="are sounds or values, but these are pictures"):
        import_folder(tmp_path / "tree", tmp_path / "out", "uci_har")


LOG_MEL = NpzOptions(x="logmel", y="label", names="words")


@pytest.mark.parametrize(
    ("file", "data_set", "options", "clients", "shape"),
    [
        ("chars74k_55writers", "femnist", NpzOptions(), 55, (1, 28, 28)),
        ("speech_commands_logmel", "speech", LOG_MEL, 239, (1, 49, 40)),
        ("speech_commands_logmel", "speech12", LOG_MEL, 239, (1, 49, 40)),
        ("uci_har", "uci_har", NpzOptions(), 30, (1, 9, 128)),
        ("cifar100_3k600", "cifar100", NpzOptions(partition=Partition("iid", 20)), 20, (3, 32, 32)),
    ],
)
def test_the_real_data_come_in_by_one_call(
    shared_data: Path,
    tmp_path: Path,
    file: str,
    data_set: str,
    options: NpzOptions,
    clients: int,
    shape: tuple[int, ...],
) -> None:
    written = import_npz(shared_data / f"{file}.npz", tmp_path / "out", data_set, options)
    assert (written.clients, written.shape, written.generated) == (clients, shape, False)
