"""Which exceptions are a machine's fault, and not of the work that it did."""

import torch

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # of a plain RuntimeError of torch


def of_machine(error: BaseException) -> bool:
    """Whether the same work might succeed on another machine, or later."""
    if isinstance(error, MemoryError | OSError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
