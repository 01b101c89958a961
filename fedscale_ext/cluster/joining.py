"""How an executor joins a job, wherever it runs: its command, its environment, and what its end means."""

import secrets
import sys
from collections.abc import Sequence

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.driver import preparation
from fedscale_ext.util.token import BYTES, read_token

JOIN = ("-m", "fedscale_ext.cli", "executor", "join")  # what Python runs
OVER, CANNOT = 0, 2  # its exit codes: any other one is worth another try
_PAUSES_S = (1.0, 5.0, 30.0)  # before the second, third, … try, and before all further ones


def job_token(config: JobConfig) -> bytes:
    """Return the token of a job's ``token_file``, or a fresh one."""
    file = config.job.token_file
    return secrets.token_bytes(BYTES) if file is None else read_token(file)


def host_and_port(host: str, port: int | str) -> str:
    """Return an address as ``fedscale executor join`` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def join_options(config: JobConfig, number: int | None = None, gpu: int | None = None) -> list[str]:
    """Options of ``fedscale executor join`` for a job, but for the file of its token.

    Args:
        config: The job's configuration.
        number: The executor's number; None for any.
        gpu: The GPU that it trains on if ``use_cuda`` is on; None for the first that it sees.

    """
    job = config.job
    values = {
        "--wait": f"{job.register_timeout_s:g}",
        "--tls-ca": job.tls_ca,
        "--tls-cert": job.tls_executor_cert,
        "--tls-key": job.tls_executor_key,
        "--number": number,
        "--gpu": gpu if config.fedscale.use_cuda else None,
    }
    return [word for option, value in values.items() if value is not None for word in (option, str(value))]


def join_command(words: Sequence[str], token_file: str) -> list[str]:
    """The command line of an executor on this machine; ``words`` are the job's address and :func:`join_options`."""
    return [sys.executable, *JOIN, *words, "--token-file", token_file]


def join_environment() -> dict[str, str]:
    """Environment of an executor: it ends with the process that starts it, and its output is for people."""
    env = preparation.environment()
    del env[preparation.EVENTS_VARIABLE]
    return env


def pause_s(failures: int) -> float:
    """Seconds before an executor that has failed so many times joins again."""
    return _PAUSES_S[min(failures, len(_PAUSES_S)) - 1]
