"""The configuration of a job that has run, from its header.json."""

import json
from collections.abc import Mapping
from typing import Any

from fedscale_ext.config.arguments import fedscale_actions
from fedscale_ext.config.job_config import JobConfig, make_config
from fedscale_ext.config.keys import JobKeys

# If such a key is null although keys that need it are set, the configuration set it to null.
_SWITCHES = {"stop_gain": ("stop_patience", "stop_unit"), "dp_noise_multiplier": ("dp_",)}


def recorded_config(settings: Mapping[str, Any]) -> JobConfig:
    """Return a job's configuration, to compute on a CPU with what it trained.

    Args:
        settings: ``config`` of header.json, as :meth:`JobConfig.echo` wrote it. Keys that this version does not have
            are left out.

    Raises:
        UserError: If a setting is not valid any more.

    """
    return make_config({}, {**recorded_keys(settings), "use_cuda": False})


def recorded_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the job_conf keys that give recorded settings again.

    Keys at their defaults are left out: some checks ask which keys a configuration gives. UserError if a setting is
    not valid any more.
    """
    known = {*JobKeys.model_fields, *fedscale_actions()}
    asked = {key: value for key, value in settings.items() if key in known or "." in key}
    keys: dict[str, Any] = {}
    for _ in range(2):  # twice, as a key's default can depend on another key (sample_mode)
        usual = make_config({}, keys).echo()
        keys |= {key: value for key, value in asked.items() if key not in usual or not _equal(usual[key], value)}
        if keys.get("dp_round_epsilon") is not None:  # what it sets is recorded, too, and refused beside it
            keys.pop("dp_noise_multiplier", None)
    for switch, dependent in _SWITCHES.items():
        if asked.get(switch, ...) is None and any(key.startswith(dependent) for key in keys):
            keys.setdefault(switch, None)
    return keys


def _equal(one: Any, other: Any) -> bool:
    """Tell whether two values are the same as JSON, which has no tuples and paths."""
    return json.dumps(one, default=str) == json.dumps(other, default=str)
