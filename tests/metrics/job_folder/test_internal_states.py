from pathlib import Path

import torch

from fedscale_ext.metrics.job_folder.internal_states import drop_states, write_states
from fedscale_ext.util.tensor_files import read_tensors


def rounds(folder: Path) -> list[int]:
    return [int(path.stem[-6:]) for path in sorted((folder / "internals").iterdir())]


def test_states_are_named_and_only_the_last_rounds_stay(tmp_path: Path) -> None:
    for number in range(1, 6):
        write_states(tmp_path, number, {"mean/m0": {"w": torch.tensor([float(number)])}}, keep=2)
    assert rounds(tmp_path) == [4, 5]
    tensors, metadata = read_tensors(tmp_path / "internals" / "round-000005.safetensors")
    assert metadata["round"] == "5" and tensors["mean/m0/w"].tolist() == [5.0]


def test_later_rounds_are_dropped_when_a_job_goes_back(tmp_path: Path) -> None:
    drop_states(tmp_path, 0)  # there is no folder yet
    for number in (1, 2, 3):
        write_states(tmp_path, number, {"a": {"w": torch.zeros(1)}}, keep=9)
    (tmp_path / "internals" / "other").touch()
    drop_states(tmp_path, 1)
    assert sorted(path.name for path in (tmp_path / "internals").iterdir()) == ["other", "round-000001.safetensors"]
