"""Makes this process an executor of a job that runs already, whoever started it, until the job or the user ends it."""

import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from fedscale_ext.config.job_config import JobConfig, from_argv, make_config
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.job_data import local_digest
from fedscale_ext.entry.launch import executor_class, prepare_process
from fedscale_ext.transport.endpoint import is_loopback
from fedscale_ext.transport.joining import Offer, request_offer
from fedscale_ext.transport.signing import JOINING
from fedscale_ext.util.code_digest import code_digest
from fedscale_ext.util.torch_devices import device_of


@dataclass(frozen=True)
class JoinOptions:
    """Where the aggregator is, and what this process has instead of the job's settings.

    Attributes:
        host: The aggregator's address or name.
        port: The port that it listens on.
        log_path: Folder for this process's log.
        token_file: File of the job's token; None for a job without one.
        data_dir: Folder of the data here; None if it is that of the job's configuration.
        gpu: Number of the GPU to train on; None for the first one, if the job uses GPUs.
        number: The executor's number to ask for; None for any.
        certificates: The keys ``tls_ca``, ``tls_executor_cert`` and ``tls_executor_key``, if the job uses TLS.

    """

    host: str
    port: int
    log_path: str
    token_file: str | None = None
    data_dir: str | None = None
    gpu: int | None = None
    number: int | None = None
    certificates: Mapping[str, str] = field(default_factory=dict)

    def keys(self) -> dict[str, Any]:
        """Return the keys of a configuration that say whom to connect to, and how."""
        tls: dict[str, Any] = dict.fromkeys(("tls_ca", "tls_executor_cert", "tls_executor_key"))
        return {"ps_ip": self.host, "ps_port": str(self.port), "token_file": self.token_file, **tls,
                **self.certificates}  # fmt: skip


def join(options: JoinOptions, wait_s: float, say: Callable[[str], None]) -> None:
    """Join a job and work for it until it is over, or this process is interrupted.

    Args:
        options: Where the aggregator is, and what this process has instead of the job's settings.
        wait_s: Longest wait in seconds for an aggregator that does not answer.
        say: Takes a sentence about what happens.

    Raises:
        UserError: If this process cannot join.
        ConnectionError: If the aggregator is lost, or sends this process away.
        KeyboardInterrupt: After an interrupt or SIGTERM. The aggregator knows then, and others have the work.

    """
    check_token(options)
    offer = request_offer(make_config({}, {**options.keys(), "this_rank": JOINING}), wait_s, options.number)
    offer.check_versions()
    config = configuration(offer, options, wait_s)
    method: Any = method_class(config.job.method)
    offer.check_code(code_digest(method), config.job.method)
    device = _device(config)
    address = f"{options.host}:{options.port}"
    other = options.number not in (None, offer.executor)
    taken = f", since number {options.number} is another one's" if other else ""
    say(f"job {offer.job} at {address} takes this process as executor {offer.executor}{taken}; data are read")
    offer.check_data(_data_digest(config), config.fedscale.data_dir)
    prepare_process(config)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    executor, log = make_executor(config)
    say(f"executor {offer.executor} works on {device}; Ctrl-C lets it leave, and its work goes to others; log: {log}")
    try:
        executor.run()
    except KeyboardInterrupt:
        if hasattr(executor, "link"):
            executor.link.leave()
        say(f"executor {offer.executor} has left job {offer.job}")
        raise
    say(f"job {offer.job} is over")


def check_token(options: JoinOptions) -> None:
    """Raise UserError where a job's token is needed and this process has none."""
    if options.token_file is not None and not Path(options.token_file).expanduser().exists():
        raise UserError(
            f"--token-file {options.token_file} does not exist: correct the path; a token that `fedscale driver start` "
            "made is gone when its job is over"
        )
    if options.token_file is None and not options.certificates and not is_loopback(options.host):
        raise UserError(
            f"a job at {options.host} is joined with its token: give --token-file, as `fedscale driver status JOB` "
            "prints it where the job was started, and --tls-ca, --tls-cert and --tls-key, too, if the job has tls_ca"
        )


def configuration(offer: Offer, options: JoinOptions, wait_s: float) -> JobConfig:
    """Return the configuration of the executor that an offer asks for; UserError for settings that are not right.

    ``options`` come before what the offer says.
    """
    settings = {**options.keys(), "this_rank": offer.executor, "log_path": options.log_path,
           "time_stamp": f"executor-{offer.executor}", "register_timeout_s": wait_s, "wandb_token": ""}  # fmt: skip
    if options.data_dir is not None:
        settings["data_dir"] = options.data_dir
    if options.gpu is not None:
        settings["cuda_device"] = f"cuda:{options.gpu}"
    try:
        config = from_argv([*offer.arguments, *(f"--{key}={value}" for key, value in settings.items())])
    except UserError as error:
        raise UserError(f"the settings of job {offer.job} cannot be used here: {error}") from None
    if config.fedscale.job_name != offer.job:
        raise UserError(f"the aggregator offers job {offer.job} and sends settings of another one")
    if options.gpu is not None and not config.fedscale.use_cuda:
        raise UserError(f"job {offer.job} trains on CPUs, since its use_cuda is False: leave --gpu out")
    return config


def _device(config: JobConfig) -> torch.device:
    """Where this process trains; UserError for a GPU that the job needs and this machine lacks."""
    try:
        return device_of(config.fedscale)
    except UserError:
        job, gpus = config.fedscale.job_name, torch.cuda.device_count()
        here = f"has only {gpus}: correct --gpu" if gpus else "has none that torch finds: join from one with a GPU"
        raise UserError(f"job {job} trains on GPUs (its use_cuda is True), and this machine {here}") from None


def _data_digest(config: JobConfig) -> str:
    """Open the job's data on this machine and return their digest; UserError where they are missing."""
    digest = local_digest(config)
    if digest is None:
        raise UserError(
            f"{config.fedscale.data_dir} holds no data set on this machine: copy the data of job "
            f"{config.fedscale.job_name} there, or name their copy with --data-dir"
        )
    return digest


def make_executor(config: JobConfig) -> tuple[Any, str]:
    """Make the executor, whose constructor begins FedScale's log, and keep that off the terminal, but for errors.

    Returns:
        The executor, and the path of the log's file.

    """
    logging.root.handlers.clear()  # FedScale's first message has made one, and its constructor would add none to it
    executor = executor_class(config.job.method)(config)
    for handler in logging.root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.ERROR)
    files = [handler.baseFilename for handler in logging.root.handlers if isinstance(handler, logging.FileHandler)]
    return executor, ", ".join(files)
