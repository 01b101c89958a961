"""What a job knows of its clients before the first round: ``clients.safetensors``, index client - 1.

``capacity`` is the MACs per sample that the device affords, ``computation_ms`` and ``communication_kbps`` its row of
the traces (all float64), ``train_samples`` int64. The names that the data give clients are text in two arrays
(text_columns.py), ``names.bytes`` and ``names.offsets``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.population.population import Population
from fedscale_ext.util.tensor_files import read_tensors, write_tensors
from fedscale_ext.util.text_columns import pack_texts, unpack_texts

CLIENTS = "clients.safetensors"
_COLUMNS = ("capacity", "computation_ms", "communication_kbps", "train_samples")
_NAMES = "names"


@dataclass(frozen=True)
class Clients:
    """Columns of a job's clients, as this module's docstring describes them.

    ``names`` is None for jobs of earlier versions, which did not write them.
    """

    capacity: np.ndarray
    computation_ms: np.ndarray
    communication_kbps: np.ndarray
    train_samples: np.ndarray
    names: Sequence[str] | None = None


def write_clients(
    log_dir: Path, capacity: np.ndarray, population: Population, train_samples: np.ndarray, names: Sequence[str]
) -> Path:
    """Write the file below ``log_dir``."""
    columns = {
        "capacity": np.asarray(capacity, dtype=np.float64),
        "computation_ms": np.asarray(population.computation_ms, dtype=np.float64),
        "communication_kbps": np.asarray(population.communication_kbps, dtype=np.float64),
        "train_samples": np.asarray(train_samples, dtype=np.int64),
    }
    path = log_dir / CLIENTS
    tensors = {name: torch.from_numpy(column.copy()) for name, column in columns.items()}
    tensors |= {f"{_NAMES}.{part}": tensor for part, tensor in pack_texts(names).items()}
    write_tensors(path, tensors, {})
    return path


def read_clients(log_dir: Path) -> Clients | None:
    """The clients of a job; None where an earlier version ran it, which did not write them."""
    path = log_dir / CLIENTS
    if not path.exists():
        return None
    tensors, _ = read_tensors(path)
    try:
        columns = {name: tensors[name].numpy() for name in _COLUMNS}
        texts = [tensors[f"{_NAMES}.{part}"] for part in ("bytes", "offsets")] if f"{_NAMES}.bytes" in tensors else None
        names = None if texts is None else unpack_texts(*texts)
    except KeyError as error:
        raise UserError(f"{path} is not of this version: it lacks {error}") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    clients = Clients(**columns, names=names)
    one_length = len({column.shape for column in columns.values()}) == 1 and clients.capacity.ndim == 1
    if not one_length or (names is not None and len(names) != len(clients.capacity)):
        raise UserError(f"{path} is damaged: its columns are not of one length")
    return clients
