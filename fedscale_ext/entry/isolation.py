"""Isolation of a job in the caller's process: it computes what it would in a process of its own.

FedScale keeps a job's arguments in a module, and torch draws from one generator. So the jobs of a process take turns.
"""

import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fedscale_ext import compat
from fedscale_ext.core.spec_cache import forget_specs

_WANDB_KEY = "WANDB_API_KEY"  # set for wandb by a job with a token
# Torch's defaults of float32 precision, by backend and operation, the general before the particular. An operation with
# "none" follows "all" of its backend, and that the generic one.
_PRECISION = {
    ("generic", "all"): "none",
    ("cuda", "all"): "none",
    ("cuda", "matmul"): "none",
    ("cuda", "conv"): "tf32",
    ("cuda", "rnn"): "tf32",
    ("mkldnn", "all"): "none",
    ("mkldnn", "matmul"): "none",
    ("mkldnn", "conv"): "none",
    ("mkldnn", "rnn"): "none",
}
_turn = threading.Lock()
_threads: set[int] = set()  # of the job that has the turn: a hook of it may run a job itself


@contextmanager
def isolated(use_cuda: bool, notice: Callable[[str], None]) -> Iterator[None]:
    """Isolate a job from what the caller has set in this process, and the caller from the job.

    The job gets torch's defaults of float32 precision, gradients and device, and no cached cost of a class that was
    edited since. The caller gets back: these settings, the number of torch's threads, the states of its generators,
    FedScale's arguments, and the variable of wandb's key. A hook that sets torch's default device is not undone.

    Args:
        use_cuda: Whether the job may draw from the GPUs' generators.
        notice: Gets a sentence if this thread waits for the job of another one.

    """
    with _in_turn(notice):
        devices = range(torch.cuda.device_count()) if use_cuda else []
        with torch.random.fork_rng(devices), _torch_defaults(), _default_precision(), compat.same_arguments(), _wandb():
            yield


@contextmanager
def _in_turn(notice: Callable[[str], None]) -> Iterator[None]:
    if threading.get_ident() in _threads:
        yield
        return
    if not _turn.acquire(blocking=False):
        notice("another job trains in this process; this one begins when that has ended")
        _turn.acquire()
    try:
        with same_turn():
            forget_specs()
            yield
    finally:
        _turn.release()


@contextmanager
def same_turn() -> Iterator[None]:
    """Make this thread one of the job that has the turn: jobs that its hooks run begin at once."""
    _threads.add(threading.get_ident())
    try:
        yield
    finally:
        _threads.discard(threading.get_ident())  # another thread may get the number


@contextmanager
def _torch_defaults() -> Iterator[None]:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with ExitStack() as modes:
            if torch.get_default_device().type != "cpu":  # the caller's default, or that of a block of the caller
                modes.enter_context(torch.device("cpu"))
            for mode in (torch.inference_mode(False), torch.enable_grad()):
                modes.enter_context(mode)
            for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                modes.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)


class _Setting(NamedTuple):
    """A setting of float32 precision, and torch's default."""

    read: Callable[[], Any]
    write: Callable[[Any], None]
    default: Any


def _precision_settings() -> list[_Setting]:
    """List torch's settings: those since 2.9 from the general to the particular, then the older ones."""
    torch_c: Any = torch._C
    settings = []
    if hasattr(torch_c, "_get_fp32_precision_getter"):
        read, write = torch_c._get_fp32_precision_getter, torch_c._set_fp32_precision_setter
        settings = [
            _Setting(partial(read, *names), partial(write, *names), default) for names, default in _PRECISION.items()
        ]
    return [
        *settings,
        _Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        _Setting(_cudnn_allows_tf32, partial(setattr, torch.backends.cudnn, "allow_tf32"), True),
    ]


def _cudnn_allows_tf32() -> bool:
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:  # it is not what the newer settings say, which have their default here
        return False


@contextmanager
def _default_precision() -> Iterator[None]:
    """Set torch's defaults of float32 precision."""
    settings, before = _precision_settings(), []
    try:
        with warnings.catch_warnings(action="ignore"):  # torch 2.9's, that the older settings will be removed
            for setting in settings:  # a particular one shows its value once the general ones are "none"
                before.append(setting.read())
                setting.write(setting.default)
        _write(settings, [setting.default for setting in settings])
        yield
    finally:
        _write(settings[: len(before)], before)


def _write(settings: list[_Setting], values: list[Any]) -> None:
    """Write the older settings first, since these change some of the newer."""
    for setting, value in zip(reversed(settings), reversed(values), strict=True):
        setting.write(value)


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
    root, last = logging.root, logging.lastResort
    level = root.level
    loggers = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]

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
        added = [file] if root.handlers or last is None else [file, last]
        callers = {handler for logger in loggers for handler in logger.handlers}
        for handler in callers | set(added[1:]):
            handler.addFilter(for_caller)
            ends.callback(handler.removeFilter, for_caller)
        for handler in added:
            root.addHandler(handler)
            ends.callback(root.removeHandler, handler)
        root.setLevel(min(level, logging.INFO))
        ends.callback(root.setLevel, level)
        yield
