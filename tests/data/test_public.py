"""Public data: chosen from the seed, of the classes that were asked for, and held by nobody else."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.public import of_another_folder, of_the_same_task
from fedscale_ext.data.public_draw import PublicDraw, choose
from fedscale_ext.data.store import DataSet, open_data_set

LABELS = np.random.default_rng(3).permutation(np.repeat(np.arange(5), [40, 30, 20, 8, 2]))
CLIENT = np.arange(100) % 7


def counts(rows: np.ndarray) -> list[int]:
    return np.bincount(LABELS[rows], minlength=5).tolist()


def test_balanced_samples_are_as_many_of_each_class_as_there_are() -> None:
    assert counts(choose(LABELS, PublicDraw(10), 1)) == [2, 2, 2, 2, 2]
    rows = choose(LABELS, PublicDraw(20), 1)
    assert counts(rows)[4] == 2 and sorted(counts(rows))[1:] in ([4, 4, 5, 5], [4, 5, 5, 4])
    assert len(set(rows.tolist())) == 20


@pytest.mark.parametrize("classes", ["balanced", "dirichlet"])
def test_equal_seeds_choose_equal_samples_and_fewer_are_the_first_ones(classes: str) -> None:
    many = choose(LABELS, PublicDraw(30, classes), 1, CLIENT)  # type: ignore[arg-type]
    assert np.array_equal(many, choose(LABELS, PublicDraw(30, classes), 1, CLIENT))  # type: ignore[arg-type]
    assert np.array_equal(many[:9], choose(LABELS, PublicDraw(9, classes), 1, CLIENT))  # type: ignore[arg-type]
    assert not np.array_equal(many, choose(LABELS, PublicDraw(30, classes), 2, CLIENT))  # type: ignore[arg-type]


def test_a_small_alpha_gives_few_classes_and_a_large_one_all() -> None:
    labels = np.repeat(np.arange(10), 100)
    few = [len(np.unique(labels[choose(labels, PublicDraw(50, "dirichlet", 0.02), seed)])) for seed in range(10)]
    many = [len(np.unique(labels[choose(labels, PublicDraw(50, "dirichlet", 100.0), seed)])) for seed in range(10)]
    assert np.mean(few) < 2.5 and min(many) >= 9


def test_no_client_gives_more_than_half_of_its_samples() -> None:
    rows = choose(LABELS, PublicDraw(44), 1, CLIENT)
    assert (np.bincount(CLIENT[rows], minlength=7) <= np.bincount(CLIENT) // 2).all()
    with pytest.raises(UserError, match="public_samples is 60 and the samples that clients can spare"):
        choose(LABELS, PublicDraw(60), 1, CLIENT)
    with pytest.raises(UserError, match="public_samples is 101 and the samples of the data set are 100"):
        choose(LABELS, PublicDraw(101), 1)


def opened(folder: Path, **more: object) -> DataSet:
    return open_data_set(folder, "femnist", seed=4, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [20, 40, 80])
def test_a_class_that_many_clients_cannot_spare_is_taken_from_those_who_can(samples: int) -> None:
    """300 clients have one sample of class 0 alone; ten others have ten of each class."""
    labels = np.concatenate([np.zeros(300, np.int64), np.tile(np.repeat(np.arange(4), 10), 10)])
    client = np.concatenate([np.arange(300), 300 + np.repeat(np.arange(10), 40)])
    rows = choose(labels, PublicDraw(samples), 1, client)
    assert np.bincount(labels[rows]).tolist() == [samples // 4] * 4
    assert (client[rows] >= 300).all() and (np.bincount(client[rows]) <= 20).all()


def test_public_samples_are_no_client_s(tiny_femnist: Path) -> None:
    data, before = opened(tiny_femnist, public_draw=PublicDraw(12)), opened(tiny_femnist)
    public = set(data.public_rows.tolist())
    clients = range(1, data.num_clients + 1)
    held = {int(row) for c in clients for row in (*data.train_rows(c), *data.test_rows(c))}
    assert len(public) == 12 and not public & held
    assert public | held == {int(row) for c in clients for row in (*before.train_rows(c), *before.test_rows(c))}
    assert np.array_equal(data.test.rows, before.test.rows)  # tests are as they would be
    assert (data.train_sizes > 0).all() and data.digest != before.digest and not len(before.public_rows)
    assert opened(tiny_femnist, public_draw=PublicDraw(12)).digest == data.digest


def test_the_server_gets_their_samples_and_labels_or_a_fraction_of_them(tiny_femnist: Path) -> None:
    data = opened(tiny_femnist, public_draw=PublicDraw(12))
    whole, part = of_the_same_task(data, 1.0), of_the_same_task(data, 0.25)
    assert whole.labels is not None and torch.equal(whole.labels, data.labels(data.public_rows))
    assert whole.x.shape == (12, 1, 28, 28) and torch.equal(part.x, whole.x[:3])


def imported(folder: Path, name: str, data_set: str, shape: tuple[int, ...], seed: int = 9) -> Path:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 255, (30, *shape)).astype(np.uint8)
    if data_set == "uci_har":
        x = (x / 64).astype(np.float16)  # type: ignore[assignment]
    np.savez(folder / f"{name}.npz", x=x, y=np.arange(30) % 5, client=np.arange(30) % 3)
    import_npz(folder / f"{name}.npz", folder / name, data_set)
    return folder / name


def test_another_data_set_is_resized_and_has_no_labels_of_the_task(tiny_femnist: Path, tmp_path: Path) -> None:
    data, other = opened(tiny_femnist), imported(tmp_path, "other", "cifar10", (3, 32, 32))
    public = of_another_folder(other, PublicDraw(10), 0.5, 1, data)
    assert public.labels is None and public.x.shape == (5, 1, 28, 28) and "other classes" in public.description
    assert torch.equal(public.x, of_another_folder(other, PublicDraw(10), 0.5, 1, data).x)
    same = of_another_folder(imported(tmp_path, "same", "femnist", (28, 28)), PublicDraw(10), 1.0, 1, data)
    assert same.labels is not None and len(same.labels) == 10


def test_what_was_resized_is_told(tiny_femnist: Path, tmp_path: Path) -> None:
    data = opened(tiny_femnist)
    said = {
        name: of_another_folder(imported(tmp_path, name, name, shape), PublicDraw(10), 1.0, 1, data).description
        for name, shape in (("cifar10", (3, 32, 32)), ("fashionmnist", (28, 28)))
    }
    assert said["cifar10"].endswith(", with other classes, resized from 3x32x32 to 1x28x28, their colours made grey")
    assert said["fashionmnist"].endswith(", with other classes")
    colours = open_data_set(imported(tmp_path, "own", "cifar10", (3, 32, 32), seed=5), "cifar10", seed=4)
    public = of_another_folder(tmp_path / "fashionmnist", PublicDraw(10), 1.0, 1, colours)
    assert public.x.shape == (10, 3, 32, 32)
    assert public.description.endswith("resized from 1x28x28 to 3x32x32, grey in three channels")


def test_values_in_another_shape_are_told(tmp_path: Path) -> None:
    folder = imported(tmp_path, "har", "uci_har", (9, 128))
    data = open_data_set(imported(tmp_path, "own", "uci_har", (9, 128), seed=5), "uci_har", input_shape=(1, 32, 36))
    said = of_another_folder(folder, PublicDraw(10), 1.0, 1, data).description
    assert said.endswith("with the clients' classes, their values put from 1x9x128 into 1x32x36")


def test_public_data_that_do_not_fit_are_refused(tiny_femnist: Path, tmp_path: Path) -> None:
    data = opened(tiny_femnist)
    with pytest.raises(UserError, match=r"10 of 10 public samples .* are clients' samples too"):
        of_another_folder(tiny_femnist, PublicDraw(10), 1.0, 1, data)
    with pytest.raises(UserError, match=r"public_dir cannot be used: samples of uci_har .* to \(1, 28, 28\)"):
        of_another_folder(imported(tmp_path, "har", "uci_har", (9, 128)), PublicDraw(10), 1.0, 1, data)
    bare = imported(tmp_path, "bare", "femnist", (28, 28))
    (bare / "dataset.json").unlink()
    with pytest.raises(UserError, match=r"public_dir cannot be used: .*bare has no dataset.json; make it with"):
        of_another_folder(bare, PublicDraw(10), 1.0, 1, data)


def named(folder: Path, name: str, labels: list[str], seed: int) -> Path:
    """Pictures of a kind of one's own, whose labels are the places of their names in alphabetical order."""
    x = np.random.default_rng(seed).integers(0, 255, (30, 28, 28)).astype(np.uint8)
    np.savez(folder / f"{name}.npz", x=x, y=np.resize(np.array(labels), 30), client=np.arange(30) % 3)
    import_npz(folder / f"{name}.npz", folder / name, "mine")
    return folder / name


def test_public_labels_are_the_clients_only_if_their_names_are(tmp_path: Path) -> None:
    words = ["one", "three", "two"]
    data = open_data_set(named(tmp_path, "clients", words, 1), "mine")
    names = ["one", "three", "two"]
    same = of_another_folder(named(tmp_path, "same", words, 2), PublicDraw(9), 1.0, 1, data, names)
    assert same.labels is not None and "with the clients' classes" in same.description
    other = of_another_folder(named(tmp_path, "other", ["one", "nil", "two"], 3), PublicDraw(9), 1.0, 1, data, names)
    assert other.labels is None
    assert other.description.endswith("with other classes: label 0 is 'one' of the clients and 'nil' there")


def test_classes_that_clients_cannot_spare_are_told(tiny_femnist: Path) -> None:
    data = opened(tiny_femnist, public_draw=PublicDraw(30))
    counts = np.bincount(data.y[data.public_rows])
    scarce = counts[counts > 0].max() - counts[counts > 0].min() > 1
    assert ("not as many of each class" in of_the_same_task(data, 1.0, balanced=True).description) == bool(scarce)
    assert "not as many" not in of_the_same_task(data, 1.0).description


def test_a_data_set_tells_which_classes_public_samples_take_whole(tmp_path: Path) -> None:
    """One sample of class 1 for each of two clients; public samples are balanced."""
    y, client = np.array([*[0] * 10, 1, *[0] * 10, 1]), np.repeat([0, 1], 11)
    x = np.random.default_rng(0).integers(0, 256, (22, 4, 4), np.uint8)
    np.savez(tmp_path / "few.npz", x=x, y=y, client=client)
    import_npz(tmp_path / "few.npz", tmp_path / "few", "few")
    whole, less = (
        open_data_set(tmp_path / "few", "few", test_split=0.0, public_draw=held) for held in (None, PublicDraw(4))
    )
    (note,) = [note for note in less.notes if note not in whole.notes]
    assert note.startswith("public samples take all training samples of class 1, so that clients cannot learn this")
