import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

TENSORS = {
    "weight": torch.arange(6, dtype=torch.float32).reshape(2, 3) / 7,
    "double": torch.tensor([1 / 3], dtype=torch.float64),
    "count": torch.tensor(2**60),
    "mask": torch.tensor([True, False]),
    "half": torch.tensor([0.1], dtype=torch.bfloat16),
    "empty": torch.zeros(0, 3),
}


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        torch.equal(first[name], second[name]) and first[name].dtype == second[name].dtype for name in first
    )


def test_round_trip_and_readable_by_safetensors(tmp_path: Path):
    path = tmp_path / "deep" / "a.safetensors"
    write_tensors(path, TENSORS, {"spec": '{"ü": "0000"}', "b": "sha256"})
    tensors, metadata = read_tensors(path)
    assert same(tensors, TENSORS)
    assert metadata == {"spec": '{"ü": "0000"}', "b": "sha256"}
    assert same(load_file(path), TENSORS)
    assert [entry.name for entry in path.parent.iterdir()] == ["a.safetensors"]


def test_equal_content_gives_equal_bytes(tmp_path: Path):
    metadata = {str(number): "x" for number in range(9)}
    contents = set()
    for number in range(6):
        write_tensors(tmp_path / str(number), TENSORS, metadata)
        contents.add((tmp_path / str(number)).read_bytes())
    assert len(contents) == 1


def test_shared_and_strided_tensors_are_stored_whole(tmp_path: Path):
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {"base": base, "tied": base, "turned": base.t(), "row": base[1]}
    write_tensors(tmp_path / "t", tensors, {})
    assert same(read_tensors(tmp_path / "t")[0], tensors)


def test_read_tensors_may_be_changed(tmp_path: Path):
    write_tensors(tmp_path / "t", TENSORS, {})
    tensors, _ = read_tensors(tmp_path / "t")
    tensors["weight"] += 1
    assert same(read_tensors(tmp_path / "t")[0], TENSORS)


def test_a_flipped_bit_anywhere_is_found(tmp_path: Path):
    path = tmp_path / "t"
    write_tensors(path, TENSORS, {"spec": "x"})
    content = path.read_bytes()
    rng = random.Random(1)
    for position in [*range(24), *rng.sample(range(len(content)), 200), len(content) - 1]:
        broken = bytearray(content)
        broken[position] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(UserError, match="damaged"):
            read_tensors(path)


@pytest.mark.parametrize("length", [0, 5, 8, 50, -1])
def test_a_file_that_was_cut_off_is_found(tmp_path: Path, length: int):
    path = tmp_path / "t"
    write_tensors(path, TENSORS, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(UserError, match="damaged"):
        read_tensors(path)


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="cannot be read"):
        read_tensors(tmp_path / "absent")
    (tmp_path / "list").write_bytes((2).to_bytes(8, "little") + b"[]")
    with pytest.raises(UserError, match="damaged"):
        read_tensors(tmp_path / "list")
