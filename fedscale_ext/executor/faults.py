"""Whose fault an exception is: the work's, this machine's, or that of a device that is lost for this process."""

import sys

import torch

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # of a plain RuntimeError of torch


def of_machine(error: BaseException) -> bool:
    """Whether the same work might succeed on another machine, or later."""
    if isinstance(error, MemoryError | OSError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)


def check_device(device: torch.device) -> None:
    """End this process where a GPU refuses all further work, as it does after a failed kernel."""
    if device.type == "cuda":
        try:
            torch.cuda.synchronize(device)
        except RuntimeError as error:
            sys.exit(f"{device} does not work any more: {error}")
