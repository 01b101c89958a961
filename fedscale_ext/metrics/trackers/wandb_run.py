"""A job's figures on Weights & Biases, for those who ask for it by ``wandb_token``."""

import importlib
import logging
import os
from argparse import Namespace
from importlib.util import find_spec
from typing import Any

import numpy as np

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.core.errors import UserError, one_line
from fedscale_ext.core.types import RoundRecord
from fedscale_ext.metrics.job_folder.file_names import NEEDS_WANDB, WANDB_LOGIN
from fedscale_ext.metrics.trackers.tags import DURATIONS

_KEYS = (
    "num_participants",
    "data_set",
    "model",
    "gradient_policy",
    "eval_interval",
    "rounds",
    "batch_size",
    "use_cuda",
)


def without_token(args: Namespace) -> Namespace:
    """FedScale's arguments without the token: its aggregator would write it into its log."""
    return Namespace(**{**vars(args), "wandb_token": ""}) if args.wandb_token else args


def open_run(config: JobConfig) -> "WandbRun | None":
    """The run that the job's token opens, in FedScale's project and group; None without a token. A run that is open
    already (a notebook's own) is gone on with and left open. UserError where wandb is missing or does not open one."""
    args = config.fedscale
    if not args.wandb_token:
        return None
    if find_spec("wandb") is None:
        raise UserError(NEEDS_WANDB)
    if args.wandb_token != WANDB_LOGIN:
        os.environ["WANDB_API_KEY"] = args.wandb_token
    wandb = importlib.import_module("wandb")
    if wandb.run is not None:
        logging.info("wandb has a run open already, which is gone on with")
        return WandbRun(wandb, opened_here=False)
    try:
        wandb.init(
            project=f"fedscale-{args.job_name}",
            name=f"aggregator{args.this_rank}-{args.time_stamp}",
            group=f"{args.time_stamp}",
            id=f"{args.job_name}-{args.time_stamp}",
            resume="allow" if config.job.resumes else None,
            config={"method": config.job.method, "seed": config.job.seed, **{key: getattr(args, key) for key in _KEYS}},
        )
    except Exception as error:  # of its own and of the network, by no common class
        raise UserError(
            f"wandb opens no run: {one_line(str(error), 200)}; check wandb_token, leave it out, or keep the run on "
            "this machine by the environment variable WANDB_MODE=offline"
        ) from None
    return WandbRun(wandb, opened_here=True)


class WandbRun:
    """An open run; one that was ``opened_here`` is closed here, too."""

    def __init__(self, wandb: Any, opened_here: bool):
        self._wandb = wandb
        self._opened_here = opened_here

    @property
    def where(self) -> str:
        """The page that shows it, or the folder that keeps it."""
        run = self._wandb.run
        return str(getattr(run, "url", None) or getattr(run, "dir", None) or "this process")

    def round(self, record: RoundRecord, figures: dict[str, float]) -> None:
        """Log a round's figures, which are those of ``metrics/trackers/tags.py``, at its number."""
        logged: dict[str, Any] = {**figures, "Train/time_to_round (min)": record.virtual_clock_s / 60.0}
        if record.client_durations_s:
            logged[DURATIONS] = np.array(record.client_durations_s) / 60.0
        self._wandb.log(logged, step=record.round)

    def finish(self, failed: bool) -> None:
        """Close a run that was opened here."""
        if self._opened_here:
            self._wandb.finish(exit_code=int(failed))
