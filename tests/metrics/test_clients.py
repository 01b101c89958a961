from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.errors import UserError
from fedscale_ext.metrics.clients import CLIENTS, read_clients, write_clients
from fedscale_ext.metrics.files import write_tensors
from fedscale_ext.population.population import Population


def test_clients_are_read_as_written(tmp_path: Path):
    population = Population(np.array([3.5, 1.0]), np.array([10.0, 0.1]), None, "made")
    path = write_clients(tmp_path, np.array([1e6, 2.5e7]), population, np.array([7, 9]))
    found = read_clients(tmp_path)
    assert path.name == CLIENTS and found is not None
    assert found.capacity.tolist() == [1e6, 2.5e7] and found.train_samples.tolist() == [7, 9]
    assert found.computation_ms.tolist() == [3.5, 1.0] and found.communication_kbps.tolist() == [10.0, 0.1]


def test_an_earlier_versions_job_has_none(tmp_path: Path):
    assert read_clients(tmp_path) is None


def test_a_file_of_something_else_is_one_sentence(tmp_path: Path):
    write_tensors(tmp_path / CLIENTS, {}, {})
    with pytest.raises(UserError, match="is not of this version: it lacks 'capacity'"):
        read_clients(tmp_path)
