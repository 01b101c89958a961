"""What tests of personal models receive is kept in the job's folder, and nothing else."""

from pathlib import Path

import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.tasks.client_tensors import ClientState, SharedTensors
from fedscale_ext.tasks.tested_tensors import FILE, keep_tested, read_tested
from fedscale_ext.util.tensor_files import write_tensors


def shared(*, tested: bool) -> SharedTensors:
    tensors = SharedTensors(tested=tested)
    tensors.set_tensors({"prototypes": torch.arange(6.0).view(2, 3)})
    return tensors


def test_shared_tensors_of_tests_and_the_objective_are_kept(tmp_path: Path) -> None:
    keep_tested(tmp_path, [ClientState(tmp_path, 3, {}), shared(tested=True)], {"predict": "prototype"})
    tensors, objective = read_tested(tmp_path)
    assert tensors is not None and torch.equal(tensors["prototypes"], torch.arange(6.0).view(2, 3))
    assert objective == {"predict": "prototype"}
    keep_tested(tmp_path, [ClientState(tmp_path, 3, {})], {"alpha": 0.5})
    assert read_tested(tmp_path) == (None, {"alpha": 0.5})


def test_a_job_without_any_leaves_no_file(tmp_path: Path) -> None:
    keep_tested(tmp_path, [shared(tested=True)], {})
    assert (tmp_path / FILE).is_file()
    keep_tested(tmp_path, [shared(tested=False)], {"alpha": 0.5})
    assert not (tmp_path / FILE).exists() and read_tested(tmp_path) == (None, {})


def test_another_file_is_one_sentence(tmp_path: Path) -> None:
    write_tensors(tmp_path / FILE, {"a": torch.zeros(1)}, {"objective": "[1]"})
    with pytest.raises(UserError, match="holds no objective"):
        read_tested(tmp_path)
