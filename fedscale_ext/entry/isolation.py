"""Isolation of a job in the caller's process: it computes what it would in a process of its own, and restores it all.

FedScale keeps a job's arguments in a module, and torch draws from one generator. So the jobs of a process take turns.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from fedscale_ext import compat
from fedscale_ext.core.spec_cache import forget_specs

_WANDB_KEY = "WANDB_API_KEY"  # set for wandb by a job with a token
_running = threading.RLock()


@contextmanager
def isolated(use_cuda: bool, notice: Callable[[str], None]) -> Iterator[None]:
    """Isolate a job from what the caller has set in this process, and the caller from the job.

    The job gets torch's defaults of precision and gradients, and no cached cost of a class that was edited since. The
    caller gets its own settings back, the states of torch's generators and the environment.

    Args:
        use_cuda: Whether the job may draw from the GPUs' generators.
        notice: Gets a sentence if this thread waits for the job of another one.

    """
    if not _running.acquire(blocking=False):
        notice("another job trains in this process; this one begins when that has ended")
        _running.acquire()
    try:
        devices = range(torch.cuda.device_count()) if use_cuda else []
        with torch.random.fork_rng(devices), _torch_defaults(), _wandb():
            forget_specs()
            yield
    finally:
        _running.release()


@contextmanager
def _torch_defaults() -> Iterator[None]:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    precision = torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)


@contextmanager
def _wandb() -> Iterator[None]:
    before = os.environ.get(_WANDB_KEY)
    try:
        yield
    finally:
        compat.set_variable(_WANDB_KEY, before)
        compat.remove_stand_in()


@contextmanager
def logging_into(folder: Path) -> Iterator[None]:
    """Log into the file ``log`` of a folder, and let the caller's handlers get what they would get without a job."""
    root = logging.root
    level = root.level

    def for_caller(record: logging.LogRecord) -> bool:
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger.level == logging.NOTSET:
            logger = logger.parent
        return logger is not root or record.levelno >= level

    folder.mkdir(parents=True, exist_ok=True)
    file = logging.FileHandler(folder / "log")
    file.setLevel(logging.INFO)
    file.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-8s [%(filename)s:%(lineno)d] %(message)s", "(%m-%d) %H:%M:%S")
    )
    with ExitStack() as ends:
        ends.callback(file.close)
        handlers = list(root.handlers)
        for handler in handlers:
            handler.addFilter(for_caller)
            ends.callback(handler.removeFilter, for_caller)
        added = [file] if handlers or logging.lastResort is None else [file, logging.lastResort]
        for handler in added:
            root.addHandler(handler)
            ends.callback(root.removeHandler, handler)
        root.setLevel(min(level, logging.INFO))
        ends.callback(root.setLevel, level)
        yield
