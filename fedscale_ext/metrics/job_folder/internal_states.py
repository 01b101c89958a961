"""Weights that a method's equations used in a round: ``internals/round-000050.safetensors`` of a job.

With ``record_internals`` only, and of the last rounds only: a whole job's would take as much room as its traffic.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from fedscale_ext.core.types import State
from fedscale_ext.util.numbered_files import drop_later, numbered_files
from fedscale_ext.util.tensor_files import write_tensors

FOLDER = "internals"
_NAME = re.compile(r"round-(\d+)\.safetensors")


def write_states(log_dir: Path, round: int, states: Mapping[str, State], keep: int) -> None:
    """Write the states of ``round``, tensors called ``<state>/<tensor>``; files of all but the last ``keep`` go."""
    tensors = {f"{name}/{key}": tensor for name, state in states.items() for key, tensor in state.items()}
    write_tensors(log_dir / FOLDER / f"round-{round:06d}.safetensors", tensors, {"round": str(round)})
    for _, old in numbered_files(log_dir / FOLDER, _NAME)[:-keep]:
        old.unlink(missing_ok=True)


def drop_states(log_dir: Path, after_round: int) -> None:
    """Remove the files of later rounds, which belong to a course of the job that was left."""
    drop_later(log_dir / FOLDER, _NAME, after_round)
