"""What the ways to start executors elsewhere have in common: each executor joins the job, wherever it runs."""

import secrets
import sys
from collections.abc import Sequence
from typing import Any

from fedscale_ext.config.executor_slots import executor_slots, slots_by_worker
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import EVENTS_VARIABLE
from fedscale_ext.driver import preparation
from fedscale_ext.driver.jobs import TLS_FILES
from fedscale_ext.util.token import BYTES, read_token

JOIN = ("-m", "fedscale_ext.cli", "executor", "join")  # what Python runs
OVER, CANNOT = 0, 2  # its exit codes: any other one is worth another try
_PAUSES_S = (1.0, 5.0, 30.0)  # before the second, third, … try, and before all further ones


# ---- the job ----


def token(config: JobConfig) -> str:
    """Return the digits of the token in a job's ``token_file``, or of a fresh one."""
    file = config.job.token_file
    return secrets.token_hex(BYTES) if file is None else read_token(file).hex()


def aggregator_arguments(config: JobConfig, **shared: Any) -> list[str]:
    """Arguments of the aggregator's entry for a job whose executors all join."""
    return preparation.arguments(preparation.without_executors(config), **shared)[preparation.AGGREGATOR]


def slots(config: JobConfig, example: str) -> list[tuple[str, list[int]]]:
    """Return each entry of ``worker_ips`` and its executors on each GPU, for nodes that this machine does not know.

    Raises:
        UserError: If an entry has no slots, or there is no executor; the sentence shows the entry ``example``.

    """
    for worker in config.cluster.worker_ips:
        check_slots(worker)
    workers = slots_by_worker(config)
    if not any(sum(counts) for _, counts in workers):
        raise UserError(f"worker_ips asks for no executors: write {example}:[n] for n executors")
    return workers


def check_slots(worker: str) -> None:
    """Check that an entry of ``worker_ips`` says how many executors there are; UserError otherwise."""
    if ":" not in worker:
        host = worker.strip()
        raise UserError(
            f"worker_ips names {host} without slots: write {host}:[n], n executors, or [n,m] for n on its first GPU "
            "and m on its second"
        )


# ---- its executors ----


def address(host: str, port: int | str) -> str:
    """Return an address as ``fedscale executor join`` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def options(config: JobConfig) -> list[str]:
    """Options of ``fedscale executor join`` for any executor of a job, but for the file of its token."""
    files = {option: getattr(config.job, key) for option, key in TLS_FILES.items()}
    words = [word for option, path in files.items() if path is not None for word in (option, path)]
    return ["--wait", f"{config.job.register_timeout_s:g}", *words]


def options_by_executor(config: JobConfig) -> list[list[str]]:
    """:func:`options` of each executor in ``worker_ips``, with its number and, if the job uses GPUs, with its GPU."""
    return [
        [*options(config), "--number", str(number), *(["--gpu", str(gpu)] if config.fedscale.use_cuda else [])]
        for number, (_, gpu) in enumerate(executor_slots(config), start=1)
    ]


def command(words: Sequence[str], token_file: str) -> list[str]:
    """The command line of an executor on this machine; ``words`` are the job's address and its options."""
    return [sys.executable, *JOIN, *words, "--token-file", token_file]


def environment() -> dict[str, str]:
    """Environment of a process that ends with the one that starts it, and whose output is for people."""
    env = preparation.environment()
    del env[EVENTS_VARIABLE]
    return env


def pause_s(failures: int) -> float:
    """Seconds before an executor that has failed so many times joins again."""
    return _PAUSES_S[min(failures, len(_PAUSES_S)) - 1]
