"""Digests that chain the rounds of a job, so that a later change of any of them shows.

A line of metrics.jsonl has ``digests``, sha256 in hexadecimal digits:

- ``code``: the program, with torch's and NumPy's versions (util/code_digest.py).
- ``data``: the data set.
- ``settings``: the settings that decide the result, and the files that they name.
- ``models``: the models after the round, as a checkpoint stores them.
- ``states``: what a checkpoint after the round has beside them, of method, selection, privacy and clients.
- ``clients``: the files of clients' tensors that the round wrote; absent where it wrote none.
- ``chain``: the chain of the round before, and this line.

Fields in :data:`VOLATILE` are left out, since they tell how a round went and not what came out. So executors, kills and
resumes do not change the chain.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch

from fedscale_ext.config.job_config import decisive
from fedscale_ext.core.types import State
from fedscale_ext.metrics.job_folder.header import JobHeader
from fedscale_ext.metrics.job_folder.jsonable import plain

#: Fields of a line that differ between runs with the same result.
VOLATILE = frozenset({"wall_s", "seconds", "executor_seconds", "faults", "cohort_sizes"})
#: The component of a checkpoint that was measured by a clock: how many clients train side by side.
MEASURED = "cohorts"
MODELS = "pool"  # the component with the models
START = ""  # the chain before the first round


def next_link(before: str, line: Mapping[str, Any]) -> str:
    """Digest the chain of the round before and a round's line, which is JSON; its own ``chain`` does not count."""
    content = {name: value for name, value in line.items() if name not in VOLATILE}
    content["digests"] = {name: value for name, value in line["digests"].items() if name != "chain"}
    return json_digest([before, content])


def job_digests(header: JobHeader) -> dict[str, str]:
    """Digest what was fixed before the first round, from header.json: ``data`` and ``settings``."""
    settings = decisive(plain(header["config"]))
    return {"data": header["data"]["digest"], "settings": json_digest([settings, plain(header.get("named_files", {}))])}


def state_digests(tensors: State, states: Mapping[str, Any]) -> dict[str, str]:
    """Digest the states of a job's components as :func:`states_digest` does: ``models`` apart from other ``states``."""
    models = {name: tensor for name, tensor in tensors.items() if name.startswith(f"{MODELS}/")}
    others = {name: tensor for name, tensor in tensors.items() if name not in models}
    return {
        "models": states_digest(models, {MODELS: states[MODELS]}),
        "states": states_digest(others, {name: state for name, state in states.items() if name != MODELS}),
    }


def states_digest(tensors: State, states: Mapping[str, Any]) -> str:
    """Digest the states of a job's components.

    Args:
        tensors: Tensors by name, as a checkpoint stores them.
        states: The JSON part of each component, by its name.

    Returns:
        The same digest before a checkpoint is written and after it is read.

    """
    sha = hashlib.sha256(_json({name: state for name, state in states.items() if name != MEASURED}))
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        sha.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        sha.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def json_digest(value: Any) -> str:
    """Digest JSON values, whatever the order of their keys."""
    return hashlib.sha256(_json(value)).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
