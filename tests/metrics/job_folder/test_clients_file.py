from pathlib import Path

import numpy as np
import pytest
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.clients_file import CLIENTS, read_clients, write_clients
from fedscale_ext.population.population import Population
from fedscale_ext.util.tensor_files import write_tensors
from fedscale_ext.util.text_columns import pack_texts


def test_clients_are_read_as_written(tmp_path: Path):
    population = Population(np.array([3.5, 1.0]), np.array([10.0, 0.1]), None, "made")
    path = write_clients(tmp_path, np.array([1e6, 2.5e7]), population, np.array([7, 9]), ["a", "größe"])
    clients = read_clients(tmp_path)
    assert path.name == CLIENTS and clients is not None
    assert clients.capacity.tolist() == [1e6, 2.5e7] and clients.train_samples.tolist() == [7, 9]
    assert clients.computation_ms.tolist() == [3.5, 1.0] and clients.communication_kbps.tolist() == [10.0, 0.1]
    assert clients.names == ["a", "größe"]


def test_an_earlier_versions_job_has_none(tmp_path: Path):
    assert read_clients(tmp_path) is None


def tensors() -> dict[str, torch.Tensor]:
    names = ("capacity", "computation_ms", "communication_kbps", "train_samples")
    return dict.fromkeys(names, torch.ones(2, dtype=torch.float64))


def test_a_job_of_an_earlier_version_has_no_names(tmp_path: Path):
    write_tensors(tmp_path / CLIENTS, tensors(), {})
    clients = read_clients(tmp_path)
    assert clients is not None and clients.names is None


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (pack_texts(["a"]), "its columns are not of one length"),
        ({**pack_texts(["a", "b"]), "offsets": torch.tensor([0, 5, 2])}, "offsets of texts do not rise"),
    ],
)
def test_names_that_cannot_be_the_clients_are_refused(tmp_path: Path, names: dict[str, torch.Tensor], words: str):
    named = {f"names.{part}": tensor for part, tensor in names.items()}
    write_tensors(tmp_path / CLIENTS, tensors() | named, {})
    with pytest.raises(UserError, match=f"is damaged: {words}"):
        read_clients(tmp_path)


def test_a_file_of_something_else_is_one_sentence(tmp_path: Path):
    write_tensors(tmp_path / CLIENTS, {}, {})
    with pytest.raises(UserError, match="is not of this version: it lacks 'capacity'"):
        read_clients(tmp_path)
