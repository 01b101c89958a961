"""Arrays of values that were reshaped where they had to be transposed: noticed, and turned."""

from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions
from fedscale_ext.data.store import open_data_set

SENSORS, STEPS = 9, 128


def windows(count: int = 40) -> np.ndarray:
    """Smooth series of nine sensors, float16 [count, sensors, steps], each sensor with a level of its own."""
    rng = np.random.default_rng(1)
    phase, speed = rng.uniform(0, 6, (2, count, SENSORS, 1))
    level = np.array([0, 0.8, -0.9, 0.3, -0.6, 1, -0.2, 0.6, -1])[:, None]
    return (level + 0.3 * np.sin(phase + speed * np.arange(STEPS) / 20)).astype(np.float16)


def imported(folder: Path, x: np.ndarray, data_set: str = "uci_har", **options: object) -> tuple[np.ndarray, list[str]]:
    np.savez(folder / "har.npz", x=x, y=np.arange(len(x)) % 6, client=np.arange(len(x)) // 10)
    written = import_npz(folder / "har.npz", folder / "out", data_set, NpzOptions(test_fraction=0.0, **options))  # type: ignore[arg-type]
    data = open_data_set(folder / "out", data_set, test_split=0.0)
    return np.asarray(data.x[:, 0]), [note for note in written.notes if "transposed" in note]


def test_an_array_that_was_reshaped_instead_of_transposed_is_noticed(tmp_path: Path) -> None:
    right = windows()
    _, notes = imported(tmp_path, right.swapaxes(1, 2).reshape(right.shape))
    assert notes == [
        "neighbouring values of array 'x' hardly resemble each other, but do if each sample is read as 128x9: it may "
        "have been reshaped where it had to be transposed; --transposed reads an npz file that way"
    ]


@pytest.mark.parametrize("x", [
    windows(), np.random.default_rng(2).normal(size=(40, SENSORS, STEPS)), np.zeros((40, SENSORS, STEPS)),
], ids=["series", "noise", "zeros"])  # fmt: skip
def test_other_arrays_are_not(tmp_path: Path, x: np.ndarray) -> None:
    values, notes = imported(tmp_path, x)
    assert notes == [] and np.array_equal(values, x.astype(np.float16))


@pytest.mark.parametrize("stored", [(SENSORS, STEPS), (STEPS, SENSORS), (1, SENSORS, STEPS)])
def test_transposed_reads_the_values_in_the_other_order(tmp_path: Path, stored: tuple[int, ...]) -> None:
    right = windows()
    values, notes = imported(tmp_path, right.swapaxes(1, 2).reshape(len(right), *stored), transposed=True)
    assert np.array_equal(values, right) and notes == []


def test_transposed_is_another_import(tmp_path: Path) -> None:
    imported(tmp_path, windows())
    with pytest.raises(UserError, match="made with other settings"):
        imported(tmp_path, windows(), transposed=True)


def test_what_cannot_be_turned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 1143 values a sample, and uci_har 1x9x128: --transposed cannot turn them"):
        imported(tmp_path, np.zeros((40, 9, 127)), transposed=True)
    with pytest.raises(UserError, match="--transposed is for data sets of measured values"):
        imported(tmp_path, np.zeros((40, 28, 28), np.uint8), "femnist", transposed=True)
