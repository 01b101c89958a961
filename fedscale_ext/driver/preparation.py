"""What a job needs before its first process starts: local hosts, a free port, a log directory, environments."""

import errno
import ipaddress
import os
import platform
import signal
import site
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from fedscale_ext.config import job_config as configuration
from fedscale_ext.config.executor_slots import executor_configs, executor_slots
from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import EVENTS_VARIABLE
from fedscale_ext.data.initial_weights_file import weights_file
from fedscale_ext.data.layout.data_folder import data_folder
from fedscale_ext.driver.jobs import Job, check_name
from fedscale_ext.driver.model_check import check_models
from fedscale_ext.driver.processes import Exit, Interrupt, ProcessEvent
from fedscale_ext.driver.setup_commands import check_program, plain_commands
from fedscale_ext.entry.parent_pipe import PIPE_VARIABLE
from fedscale_ext.metrics.job_folder.file_names import NEEDS_WANDB, WANDB_LOGIN
from fedscale_ext.privacy.accounting import NEEDS_ACCOUNTING
from fedscale_ext.util.package import PACKAGE
from fedscale_ext.util.token import read_token

WANDB_VARIABLE = "WANDB_API_KEY"  # wandb's own
AGGREGATOR = "aggregator"


def commands(config: JobConfig, **shared: Any) -> dict[str, list[str]]:
    """The argument list of each process by its name: the aggregator's first, then one executor per slot."""
    aggregator, executor = map(str, config.entry_paths())
    return {
        name: [sys.executable, aggregator if name == AGGREGATOR else executor, *words]
        for name, words in arguments(config, **shared).items()
    }


def arguments(config: JobConfig, **shared: Any) -> dict[str, list[str]]:
    """Arguments of each entry that :func:`commands` starts, by the name of the process."""
    slots = executor_slots(config)
    shared |= {"num_executors": len(slots), "executor_configs": executor_configs(config)}
    result = {AGGREGATOR: configuration.to_argv(config, **shared, this_rank=0)}
    for rank, (_, gpu) in enumerate(slots, start=1):
        result[f"executor {rank}"] = configuration.to_argv(config, **shared, this_rank=rank, cuda_device=f"cuda:{gpu}")
    return result


def without_executors(config: JobConfig) -> JobConfig:
    """The same job without executors of its own: all of them join."""
    return replace(config, cluster=config.cluster.model_copy(update={"worker_ips": ()}))


def hide_key(config: JobConfig) -> JobConfig:
    """Move a Weights & Biases key from the configuration into the environment.

    Anyone on this machine can read the command lines of its processes, and job.json stores them.
    """
    if not _shows_key(config):
        return config
    os.environ[WANDB_VARIABLE] = config.fedscale.wandb_token
    return configuration.with_values(config, wandb_token=WANDB_LOGIN)


def refuse_key(config: JobConfig) -> None:
    """Refuse a Weights & Biases key in the configuration of a job that other machines run."""
    if _shows_key(config):
        raise UserError(
            "wandb_token holds a key, which command lines and files on other machines would show; log in there by "
            f"`wandb login` and write wandb_token: {WANDB_LOGIN}"
        )


def _shows_key(config: JobConfig) -> bool:
    """A name of an environment variable is passed on as it is, and read where it is used."""
    token = str(config.given.get("wandb_token") or WANDB_LOGIN)
    return token != WANDB_LOGIN and not token.startswith("$")


def check_start(config: JobConfig) -> tuple[list[list[str]], list[str]]:
    """Check that a job of this machine can start, as far as that is seen without torch; UserError otherwise.

    Returns its setup commands as ``plain_commands`` does.
    """
    check_name(config.fedscale.job_name)
    check_address(config)
    check_hosts(config)
    config.entry_paths()
    plain, shell = plain_commands(config.cluster.setup_commands or ())
    for argv in plain:
        check_program(argv)
    if config.job.token_file is not None:
        read_token(config.job.token_file)
    if not plain:  # a setup command may be what fetches them
        check_inputs(config, data=bool(configuration.executor_slots(config)))  # else those who join have the data
    return plain, shell


def check_address(config: JobConfig) -> None:
    """Refuse a ``ps_ip`` that stands for all addresses of a machine: executors could not join there."""
    host = config.fedscale.ps_ip
    with suppress(ValueError):  # a name
        if ipaddress.ip_address(host).is_unspecified:
            raise UserError(
                f"ps_ip {host} names no machine: set it to the address at which executors reach the aggregator, or to "
                "127.0.0.1 if all of them are on this machine"
            )


def check_hosts(config: JobConfig) -> None:
    """Refuse executors on other machines with a UserError."""
    local = {"localhost", "127.0.0.1", "::1", config.fedscale.ps_ip, platform.node(), socket.gethostname()}
    for host, _ in executor_slots(config):
        if host not in local:
            raise UserError(
                f"worker_ips names {host}, but `driver start` starts executors on this machine only; "
                "write localhost, or start the job with `fedscale driver submit`"
            )


def check_inputs(config: JobConfig, data: bool = True) -> None:
    """Check the data folder, method, models and packages that a job needs; UserError where one is missing.

    Models must also take the data. With ``data`` false, the data folder is not checked.
    """
    if data:
        data_folder(config.fedscale.data_dir, config.fedscale.data_set)
    if config.job.public_dir is not None:
        try:
            data_folder(config.job.public_dir)
        except UserError as error:
            raise UserError(f"public_dir cannot be used: {error}") from None
    for key, model in (("model", config.fedscale.model), ("capacity_model", config.job.capacity_model)):
        if model is not None and model.endswith(".json") and not Path(model).expanduser().is_file():
            raise UserError(f"{key} names the file {model}, which does not exist")
    check_models(config, data)
    if config.job.initial_weights is not None:
        weights_file(config.job.initial_weights)  # of the Hub, it is downloaded now
    if config.job.dp_noise_multiplier is not None and find_spec("dp_accounting") is None:
        raise UserError(NEEDS_ACCOUNTING)
    if config.fedscale.wandb_token and find_spec("wandb") is None:
        raise UserError(NEEDS_WANDB)


def port(config: JobConfig) -> int:
    """The port to listen on: ``ps_port`` if it is free, any free one where that is 0."""
    host, port = config.fedscale.ps_ip, int(config.fedscale.ps_port)
    try:
        with socket.create_server((host, port)) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(
                f"port {port} on {host} is in use; choose another with --set ps_port={port + 1}, "
                "or a free one with --set ps_port=auto"
            ) from None
        raise UserError(f"ps_ip {host} with ps_port {port} cannot be listened on: {error.strerror}") from None


def make_log_dir(job: Job, config: JobConfig, resumed: bool = False) -> None:
    """Make the folder that a job writes into; UserError where its ``log_path`` does not let it.

    A run that begins has the folder for itself: where its ``time_stamp`` is that of another run, as of one that began
    in the same second, the record gets a further one. A ``resumed`` run, or one that the configuration names, may have
    its folder.
    """
    try:
        if resumed or "time_stamp" in config.given:
            job.log_dir.mkdir(parents=True, exist_ok=True)
        else:
            _make_new(job)
        if not os.access(job.log_dir, os.W_OK | os.X_OK):  # one that was there before
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(job.log_dir))
    except OSError as error:
        if os.path.isdir(job.log_path):
            fault = f"cannot be written ({error.filename}: {error.strerror})"
        elif os.path.exists(job.log_path):
            fault = "is no folder"
        else:
            fault = f"cannot be created ({error.strerror})"
        raise UserError(f"log_path {job.log_path} {fault}; set it to a folder that you can write to") from None


def _make_new(job: Job) -> None:
    job.log_dir.parent.mkdir(parents=True, exist_ok=True)
    stamp = job.time_stamp
    for number in count(2):
        with suppress(FileExistsError):
            job.log_dir.mkdir()
            return
        job.time_stamp = f"{stamp}_{number}"


# Each training step allocates and frees the same large tensors. By default glibc hands such memory back to
# the system and gets it again page by page; a process that keeps up to 256 MiB, in huge pages, trains
# cohorts faster (evals/speed/README.md). One arena for all threads: what one freed serves the others, which
# saves an executor of the LEAF CNN 80 MB and its aggregator 200 MB. Other C libraries ignore the variable.
_MALLOC = ":".join(
    f"glibc.malloc.{name}"
    for name in ("hugetlb=1", "arena_max=1", "mmap_threshold=16777216", "trim_threshold=268435456", "top_pad=16777216")
)


def environment() -> dict[str, str]:
    """Environment of a job's process: it reports events, ends with the driver and finds this package.

    One thread each: there are as many executors as cores, and the aggregator works between them.
    """
    result = {**os.environ, EVENTS_VARIABLE: "1", PIPE_VARIABLE: "1", "PYTHONUNBUFFERED": "1"}
    result["OMP_NUM_THREADS"] = "1"
    result.setdefault("GLIBC_TUNABLES", _MALLOC)
    package_parent = str(PACKAGE.parent)
    if package_parent not in [*site.getsitepackages(), site.getusersitepackages()]:
        # run from a checkout: a script sees its own folder, not the one that this command was run from
        result["PYTHONPATH"] = os.pathsep.join(filter(None, [package_parent, os.environ.get("PYTHONPATH")]))
    return result


@contextmanager
def interrupts_into(inbox: "SimpleQueue[Exit | ProcessEvent | Interrupt]") -> Iterator[None]:
    """Turn SIGINT, SIGTERM and a closed terminal (unless under nohup) into messages for the block's duration."""

    def tell(number: int, _: FrameType | None) -> None:
        inbox.put(Interrupt(number))

    previous_handlers = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            previous_handlers[number] = signal.signal(number, tell)
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
