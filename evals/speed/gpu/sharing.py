"""NVIDIA's Multi-Process Service (MPS), by which kernels of several processes run on one GPU at the same time.

Without it a GPU runs the processes in turn.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_WAIT_S = 20.0
_NOWHERE = subprocess.DEVNULL


def control() -> str | None:
    """Path of the program that starts and ends the service; None where there is none."""
    return shutil.which("nvidia-cuda-mps-control")


@contextmanager
def shared_gpu(program: str, folder: Path) -> Iterator[dict[str, str]]:
    """Run the service in the block; yields the variables of processes that are to share the GPU by it.

    Args:
        program: What :func:`control` returned.
        folder: Of the service's sockets and logs; its path must be short, as paths of sockets are.

    Raises:
        RuntimeError: The service does not start.

    """
    variables = {f"CUDA_MPS_{name}_DIRECTORY": str(folder / name.lower()) for name in ("PIPE", "LOG")}
    for path in variables.values():
        Path(path).mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **variables}
    try:
        # the service outlives this program: a pipe that it inherits would not end
        subprocess.run([program, "-d"], env=environment, stdin=_NOWHERE, stdout=_NOWHERE, stderr=_NOWHERE,
                       timeout=_WAIT_S, check=True)  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeError(f"{program} did not start: {error}") from error
    try:
        yield variables
    finally:
        subprocess.run(
            [program], input="quit\n", text=True, env=environment, stdout=_NOWHERE, stderr=_NOWHERE,
            timeout=_WAIT_S, check=False,
        )  # fmt: skip
