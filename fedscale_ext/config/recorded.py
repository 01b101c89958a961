"""The configuration of a job that has run, from its header.json."""

from collections.abc import Mapping
from typing import Any

from fedscale_ext.config.arguments import fedscale_actions
from fedscale_ext.config.job_config import JobConfig, make_config
from fedscale_ext.config.keys import JobKeys


def recorded_config(settings: Mapping[str, Any]) -> JobConfig:
    """Return a job's configuration, to compute on a CPU with what it trained.

    Args:
        settings: ``config`` of header.json, as :meth:`JobConfig.echo` wrote it. Keys that this version does not have
            are left out.

    Raises:
        UserError: If a setting is not valid any more.

    """
    known = {*JobKeys.model_fields, *fedscale_actions()}
    # only what differs from the defaults: some checks ask which keys were given
    usual = make_config({}, {}).echo()
    changed = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    if changed.get("dp_round_epsilon") is not None:  # what it sets is recorded, too, and cannot be given beside it
        changed.pop("dp_noise_multiplier", None)
    flat = {key: value for key, value in changed.items() if key in known or ("." in key and value is not None)}
    return make_config({}, {**flat, "use_cuda": False})
