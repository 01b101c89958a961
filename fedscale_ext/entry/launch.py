"""One process of a job, from its command line to its exit code: what the entry scripts call."""

import faulthandler
import gc
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedscale_ext import compat
from fedscale_ext.config.job_config import JobConfig, from_argv
from fedscale_ext.core.errors import JobFailed, UserError
from fedscale_ext.core.events import print_event
from fedscale_ext.entry.parent_pipe import exit_with_parent
from fedscale_ext.util import full_disk
from fedscale_ext.util.package import PACKAGE


def run_aggregator() -> None:
    """Run this process as the job's aggregator; exits 0 only when the job finished."""
    run_process(_aggregator)


def run_executor() -> None:
    """Run this process as one of the job's executors."""
    run_process(_executor)


def run_rank() -> None:
    """Run this process as aggregator (``--this_rank=0``) or executor, for one file that is both entries."""
    run_process(lambda config: _aggregator(config) if config.fedscale.this_rank == 0 else _executor(config))


def executor_class(name: str) -> type:
    """The executor class of a method: its aggregator's ``Executor``."""
    from fedscale_ext.config.methods import method_class
    from fedscale_ext.server.method_base.method_traits import MethodTraits

    method: type[MethodTraits] = method_class(name)
    return method.Executor


def prepare_process(config: JobConfig) -> None:
    """Let FedScale's modules see the job's arguments."""
    compat.install_arguments(config.fedscale)


def _aggregator(config: JobConfig) -> None:
    from fedscale_ext.config.methods import method_class

    _run(method_class(config.job.method), config)


def _executor(config: JobConfig) -> None:
    _run(executor_class(config.job.method), config)


def _run(role: Any, config: JobConfig) -> None:
    gc.freeze()  # what was imported stays: walking it would cost half a second at exit, and at times before
    with full_disk.refused(config.fedscale.log_path, full_disk.AT_START):
        process = role(config)  # FedScale opens its logs here
    process.run()


def run_process(role: Callable[[JobConfig], Any]) -> None:
    """Run a role with the job of the command line, as a driver starts it; how it ends is this process's exit code."""

    def run() -> None:
        config = from_argv(sys.argv[1:])
        prepare_process(config)
        role(config)

    run_guarded(run)


def run_guarded(task: Callable[[], None]) -> None:
    """Run the task of a process that a driver started: it ends with the driver, and its errors become an event and an
    exit code."""
    # a script's folder comes first in sys.path, where the names of its neighbours would shadow packages
    sys.path[:] = [folder for folder in sys.path if not Path(folder or ".").resolve().is_relative_to(PACKAGE)]
    exit_with_parent()
    faulthandler.enable()  # where native code crashed: no other trace would be left
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        task()
    except JobFailed as error:
        _fail(str(error), 1, final=True)
    except UserError as error:
        _fail(str(error), 2)
    except ConnectionError as error:
        _fail(str(error), 1)
    except Exception as error:
        logging.exception("this process ends")
        _fail(f"{type(error).__name__}: {error}", 1)


def _fail(message: str, code: int, *, final: bool = False) -> None:
    """End this process; ``final``: starting it again would not help."""
    print_event({"event": "error", "message": message, "exit_code": code, "final": final})
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
