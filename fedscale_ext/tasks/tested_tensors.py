"""What the last test of clients' personal models received in addition, kept in the job's folder for predictions.

Clients' own tensors are in files of their own (``client_files.py``). Of the server's, a prediction needs the shared
tensors that tests receive, such as FedProto's prototypes, and the method's objective in tests.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.tasks.client_tensors import ClientTensors, SharedTensors
from fedscale_ext.util.reading import load_json
from fedscale_ext.util.tensor_files import read_tensors, write_tensors

FILE = "tested_tensors.safetensors"
_OBJECTIVE = "objective"


def keep_tested(log_dir: Path, client_tensors: Iterable[ClientTensors], objective: Mapping[str, Any]) -> None:
    """Write the shared tensors that tests receive, and the objective, at a job's end; no file where there are none."""
    tested = [each for each in client_tensors if each.tested]
    shared = {name: tensor for each in tested if isinstance(each, SharedTensors)
              for name, tensor in each.tensors.items()}  # fmt: skip
    path = log_dir / FILE
    if tested and (shared or objective):
        write_tensors(path, shared, {_OBJECTIVE: json.dumps(dict(objective), sort_keys=True)})
    else:
        drop_tested(log_dir)  # of an earlier job in this folder


def drop_tested(log_dir: Path) -> None:
    """Remove the file of :func:`keep_tested`, if there is one."""
    (log_dir / FILE).unlink(missing_ok=True)


def read_tested(log_dir: Path) -> tuple[State | None, dict[str, Any]]:
    """Return the shared tensors, None for none, and the objective of :func:`keep_tested`, {} for none."""
    path = log_dir / FILE
    if not path.is_file():
        return None, {}
    tensors, metadata = read_tensors(path)
    try:
        objective = load_json(metadata[_OBJECTIVE])
    except (KeyError, ValueError):
        objective = None
    if not isinstance(objective, dict):
        raise UserError(f"{path} holds no objective: it was not written at the end of a job")
    return tensors or None, objective
