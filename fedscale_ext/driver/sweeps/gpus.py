"""The GPUs of this machine that a command may use, and how full they are, by NVIDIA's nvidia-smi.

torch would tell, too. But it opens a context of hundreds of megabytes on each GPU that it is asked for.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VISIBLE = "CUDA_VISIBLE_DEVICES"  # CUDA's variable: the GPUs of a process, by index or UUID
_COMMAND = ("nvidia-smi", "--query-gpu=index,uuid,memory.used,memory.total", "--format=csv,noheader,nounits")
_WAIT_S = 20.0  # a GPU that sleeps takes seconds to answer


@dataclass(frozen=True)
class Gpu:
    """A GPU, and the MiB of its memory that all processes together use."""

    uuid: str
    used_mib: int
    total_mib: int


def read_gpus() -> list[Gpu]:
    """Return the GPUs that this process may use, in its order; none where nvidia-smi does not tell of them.

    Of the entries of CUDA_VISIBLE_DEVICES, those that name no whole GPU (a part of one, say) are left out, and like
    CUDA all that follow one which names nothing.
    """
    by_index = _query()
    if VISIBLE not in os.environ:
        return list(by_index.values())
    gpus: list[Gpu] = []
    for entry in os.environ[VISIBLE].split(","):
        gpu = _named(entry.strip(), by_index)
        if gpu is None:
            break
        gpus.append(gpu)
    return gpus


def _named(entry: str, by_index: Mapping[str, Gpu]) -> Gpu | None:
    """Return the GPU of an index, or of the beginning of a UUID."""
    if entry in by_index:
        return by_index[entry]
    matching = [gpu for gpu in by_index.values() if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
    return matching[0] if len(matching) == 1 else None


def _query() -> dict[str, Gpu]:
    """Return all GPUs of the machine by their index."""
    try:
        answer = subprocess.run(_COMMAND, capture_output=True, text=True, timeout=_WAIT_S, check=True).stdout
        return dict(_parsed(line.split(",")) for line in answer.splitlines() if line.strip())
    except (OSError, ValueError, subprocess.SubprocessError):  # no such command or driver, or an answer of another form
        return {}


def _parsed(cells: Sequence[str]) -> tuple[str, Gpu]:
    """Return a line's index and GPU; ValueError where it is of another form."""
    index, uuid, used, total = (cell.strip() for cell in cells)
    return index, Gpu(uuid, int(used), int(total))
