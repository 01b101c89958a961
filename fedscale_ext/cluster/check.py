"""What a host must have in common with the others, told by the host and compared before anything of a job starts."""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedscale_ext.config.executor_slots import executor_slots
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.driver import preparation
from fedscale_ext.driver.runs import newest_checkpoint
from fedscale_ext.driver.supervision import has_checkpoint

EVENT = "checked"


@dataclass(frozen=True)
class Report:
    """Facts about a host.

    Attributes:
        folder: Where relative paths begin.
        data: Digest of the samples, where executors are to run.
        port: Where the aggregator is to listen, on its host.
        newest: ``time_stamp`` of the run that a resumed job continues, on the aggregator's host.
        skew_s: How far the clock is ahead.

    """

    python: str
    torch: str
    numpy: str
    code: str
    gpus: int
    folder: str = ""
    data: str | None = None
    port: int | None = None
    newest: str | None = None
    skew_s: float = 0.0

    @classmethod
    def read(cls, event: Mapping[str, Any]) -> "Report":
        """The report in a host's event; ``received_at`` is when the driver received it."""
        values: dict[str, Any] = {key: event.get(key) for key in cls.__dataclass_fields__ if key != "skew_s"}
        return cls(**values, skew_s=float(event["time"]) - event["received_at"])


def compare(reports: Mapping[str, Report], host_of: Mapping[str, str], config: JobConfig) -> None:
    """Raise a UserError that names a host where hosts would not train alike; the aggregator's host is the reference."""
    first = host_of[preparation.AGGREGATOR]
    reports = {host: reports[host] for host in dict.fromkeys(host_of.values())}  # they came in any order
    theirs = reports[first]
    for host, its in reports.items():
        for what in ("torch", "numpy"):
            if getattr(its, what) != getattr(theirs, what):
                raise UserError(
                    f"{host} has {what} {getattr(its, what)} and {first} {getattr(theirs, what)}: install the same "
                    "version on both, since results depend on it"
                )
        if its.code != theirs.code:
            raise UserError(
                f"{host} has other code of method {config.job.method} than {first}: install the same version of its "
                "package on both"
            )
        off = abs(its.skew_s - theirs.skew_s)
        if off > config.job.message_window_s / 2:
            raise UserError(
                f"the clocks of {host} and {first} differ by {off:.0f} s, so that their messages would be refused as "
                "old: set the clocks, or raise message_window_s"
            )
    _compare_data(reports, config)
    if config.fedscale.use_cuda:
        for host, gpu in executor_slots(config):
            if gpu >= reports[host].gpus:
                raise UserError(
                    f"worker_ips asks for GPU {gpu} of {host}, where torch finds {reports[host].gpus}: correct "
                    "worker_ips, or set use_cuda: False"
                )


def _compare_data(reports: Mapping[str, Report], config: JobConfig) -> None:
    training = {host: report.data for host, report in reports.items() if report.data is not None}
    first = next(iter(training), "")
    for host, digest in training.items():
        if digest != training[first]:
            raise UserError(
                f"data_dir {config.fedscale.data_dir} holds other samples or clients on {host} than on {first}: copy "
                "the folder anew"
            )


def pythons(reports: Mapping[str, Report]) -> str | None:
    """A note where hosts have different Pythons; results do not depend on them."""
    host_with = {report.python: host for host, report in reports.items()}
    return None if len(host_with) < 2 else ", ".join(f"Python {python} on {host}" for python, host in host_with.items())


def report(config: JobConfig, aggregates: bool, trains: bool) -> dict[str, Any]:
    """What this host has of what hosts must have in common, as the host of the aggregator, of executors, or both."""
    import numpy as np
    import torch

    from fedscale_ext.config.methods import method_class
    from fedscale_ext.data.job_data import open_job_data
    from fedscale_ext.util.code_digest import code_digest

    preparation.check_inputs(config, data=trains)
    result: dict[str, Any] = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "code": code_digest(method_class(config.job.method)),
        "gpus": torch.cuda.device_count() if config.fedscale.use_cuda else 0,
    }
    if aggregates:
        result["port"] = preparation.port(config)
        result["newest"] = run_with_checkpoint(config)
    if trains:
        result["data"] = open_job_data(config).digest
    return {**result, "time": time.time()}


def run_with_checkpoint(config: JobConfig) -> str | None:
    """``time_stamp`` of the run that a resumed job continues on this host; None without a checkpoint.

    The last run is continued if it has a checkpoint, else the newest run that has one.
    """
    runs, stamp = Path(config.fedscale.log_path, "logs", config.fedscale.job_name), config.fedscale.time_stamp
    return stamp if has_checkpoint(runs / stamp) else newest_checkpoint(runs)
