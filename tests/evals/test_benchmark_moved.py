"""Digits at random places of a frame: a task's data that is written anew from a public file."""

from pathlib import Path

import numpy as np

from evals.benchmark.moved import FRAME, write_moved
from evals.benchmark.tasks import BENCHMARK, PARTITION, TASKS
from fedscale_ext.data.store import open_data_set


def digits(path: Path, samples: int) -> Path:
    """Write generated pictures, each of one grey value in all its pixels, which is ten times its label."""
    labels = np.arange(samples) % 10
    pictures = np.repeat(10 * (labels + 1), 28 * 28).reshape(-1, 28, 28).astype(np.uint8)
    half = samples // 2
    np.savez(path, x_train=pictures[:half], y_train=labels[:half], x_test=pictures[half:], y_test=labels[half:])
    return path


def test_each_digit_is_whole_at_a_place_of_its_own(tmp_path: Path) -> None:
    source = digits(tmp_path / "mnist.npz", 200)
    write_moved(source, tmp_path / "a" / "moved.npz")
    with np.load(tmp_path / "a" / "moved.npz") as arrays:
        pictures, labels = arrays["x"], arrays["y"]
    assert pictures.shape == (200, FRAME, FRAME) and pictures.dtype == np.uint8
    assert np.bincount(labels).tolist() == [20] * 10
    corners = set()
    for picture, label in zip(pictures, labels, strict=True):
        rows, columns = np.nonzero(picture)
        assert (np.ptp(rows), np.ptp(columns)) == (13, 13)
        assert set(picture[picture > 0].tolist()) == {10 * (label + 1)}
        corners.add((rows.min(), columns.min()))
    assert len(corners) > 60  # of 81
    write_moved(source, tmp_path / "b.npz")
    with np.load(tmp_path / "b.npz") as again:
        assert np.array_equal(again["x"], pictures) and np.array_equal(again["y"], labels)


def test_the_task_is_dealt_from_the_moved_digits(tmp_path: Path) -> None:
    digits(tmp_path / "mnist.npz", 8_000)
    folder = BENCHMARK.prepared(PARTITION["mnist"], tmp_path / "data", tmp_path)
    data = open_data_set(folder, "mnist", input_shape=TASKS["mnist"].shape, test_split=0.0)
    assert (data.num_clients, data.num_classes) == (TASKS["mnist"].clients, TASKS["mnist"].classes)
    inputs, _ = data.tensors(data.train_rows(1)[:1])
    assert tuple(inputs.shape[1:]) == TASKS["mnist"].shape
    assert not (tmp_path / "data" / f"{PARTITION['mnist']}.npz").exists()
