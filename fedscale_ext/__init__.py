"""Federated learning in which clients train different models, as an extension of FedScale."""

from datetime import datetime
from pathlib import Path
from typing import Any

__version__ = "0.1.0"


def run(conf: str | Path, **overrides: Any) -> dict[str, Any]:
    """Run a job in this process and return its summary: the same result as ``fedscale driver start``.

    ``conf`` is a YAML file or the name of a shipped configuration; ``overrides`` are job_conf keys,
    such as ``rounds=20`` (a dotted key goes in as ``**{"fedtrans.beta": 0.01}``); paths are relative to
    the working directory. The summary's ``log_dir`` names the folder of results; to resume a run, give its
    ``time_stamp`` and ``resume=True``. Raises ``fedscale_ext.errors.UserError`` with one sentence for bad input.
    """
    from fedscale_ext.config import load_config, with_values
    from fedscale_ext.runtime.in_process import run_in_process

    config = with_values(load_config(conf), **overrides)
    if "time_stamp" not in config.given:
        config = with_values(config, time_stamp=f"{datetime.now():%m%d_%H%M%S}")
    return run_in_process(config)
