"""What a job knows of its clients before the first round: ``clients.safetensors``, index client - 1.

``capacity`` is the MACs per sample that the device affords, ``computation_ms`` and ``communication_kbps`` its row of
the traces (all float64), ``train_samples`` int64.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.errors import UserError
from fedscale_ext.metrics.files import read_tensors, write_tensors
from fedscale_ext.population.population import Population

CLIENTS = "clients.safetensors"


@dataclass(frozen=True)
class Clients:
    """Columns of a job's clients, as this module's docstring has them."""

    capacity: np.ndarray
    computation_ms: np.ndarray
    communication_kbps: np.ndarray
    train_samples: np.ndarray


def write_clients(log_dir: Path, capacity: np.ndarray, population: Population, train_samples: np.ndarray) -> Path:
    """Write the file below ``log_dir``."""
    columns = {
        "capacity": np.asarray(capacity, dtype=np.float64),
        "computation_ms": np.asarray(population.computation_ms, dtype=np.float64),
        "communication_kbps": np.asarray(population.communication_kbps, dtype=np.float64),
        "train_samples": np.asarray(train_samples, dtype=np.int64),
    }
    path = log_dir / CLIENTS
    write_tensors(path, {name: torch.from_numpy(column.copy()) for name, column in columns.items()}, {})
    return path


def read_clients(log_dir: Path) -> Clients | None:
    """The clients of a job; None where an earlier version ran it, which did not write them."""
    path = log_dir / CLIENTS
    if not path.exists():
        return None
    tensors, _ = read_tensors(path)
    try:
        clients = Clients(**{name: tensors[name].numpy() for name in Clients.__dataclass_fields__})
    except KeyError as error:
        raise UserError(f"{path} is not of this version: it lacks {error}") from None
    if len({column.shape for column in vars(clients).values()}) != 1 or clients.capacity.ndim != 1:
        raise UserError(f"{path} is damaged: its columns are not of one length")
    return clients
