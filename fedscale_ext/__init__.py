"""Federated learning in which clients train different models, as an extension of FedScale."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedscale_ext.util.package import VERSION as __version__  # noqa: F401

if TYPE_CHECKING:
    from fedscale_ext.api.result import Result


def run(
    conf: str | Path, *, on: str | None = None, processes: bool = False, progress: bool = True, **overrides: Any
) -> "Result":  # fmt: skip
    """Run a job and return its :class:`~fedscale_ext.api.result.Result`: the same result as ``fedscale driver start``.

    ``conf`` is a YAML file, the name of a shipped configuration, or that of a method, which trains ``on`` a data set
    (``fedscale config list``); ``overrides`` are keys of it, such as ``rounds=20`` (a dotted one goes in as
    ``**{"fedtrans.beta": 0.01}``); paths are relative to the working directory.
    The job trains in this process; with ``processes`` in those that ``worker_ips`` asks for, one per core for
    ``localhost``, which is faster, and ``fedscale driver stop`` ends it. ``progress`` is shown on standard error,
    in a notebook below the cell. An interrupt (Ctrl-C, or a notebook's stop) ends the job, and KeyboardInterrupt is
    raised; ``resume=True`` continues its last run. Raises ``fedscale_ext.method.UserError`` with one sentence for bad
    input and for a job that failed. In this process, an exception in a hook of a method is raised as it is. Jobs of
    several threads take turns.
    """
    from fedscale_ext.api.running import run as run_job

    return run_job(conf if on is None else f"{conf} --on {on}", overrides, processes=processes, progress=progress)


def load(job: str | Path) -> "Result":
    """The :class:`~fedscale_ext.api.result.Result` of a job, finished or under way: its log folder or its job_name."""
    from fedscale_ext.api.result import load as load_result

    return load_result(job)
