"""FedScale's own arguments: which there are, and their values, typed and checked as a configuration gives them."""

import argparse
import math
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from fedscale_ext import compat
from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.core.errors import UserError, did_you_mean
from fedscale_ext.util.ranges import Range, values
from fedscale_ext.util.validation import KINDS

_PATH_KEYS = ("data_dir", "data_map_file", "device_conf_file", "device_avail_file", "log_path", "conf_path")
_POSITIVE = ("num_participants", "rounds", "local_steps", "batch_size", "test_bsz", "eval_interval",
             "learning_rate", "decay_round", "decay_factor", "connection_timeout", "yogi_eta",
             "yogi_tau")  # fmt: skip
# FedScale keys of which only one value is built here
_ONLY = {"engine": "pytorch", "task": "cv", "experiment_mode": "simulation", "test_ratio": 1.0}
# who selects participants, and where its own code has other defaults than FedScale
_SAMPLE_MODES: dict[str, dict[str, Any]] = {
    "random": {},
    "oort": {},
    "pyramidfl": {"exploration_decay": 0.95, "exploration_min": 0.2, "round_threshold": 10.0, "clip_bound": 0.98,
                  "cut_off_util": 0.7},
}  # fmt: skip
# closed ranges of FedScale's numbers
_RANGES = {"decay_factor": (0, 1),
           "exploration_factor": (0, 1), "exploration_decay": (0, 1), "exploration_min": (0, 1), "clip_bound": (0, 1),
           "cut_off_util": (0, 1), "blacklist_max_len": (0, 1), "round_threshold": (0, 100), "pacer_delta": (0, 100),
           "round_penalty": (0, 100), "sample_window": (1, 10**9), "pacer_step": (1, math.inf),
           "blacklist_rounds": (-1, math.inf), "overcommitment": (1, math.inf), "min_learning_rate": (0, math.inf),
           "proxy_mu": (0, math.inf), "qfed_q": (0, 100)}  # fmt: skip
_DECAYS = ("yogi_beta", "yogi_beta2")  # from 0, below 1
# the run's folder has this name, in that of its job; as a job_name, and with the ':' of a time of day
_TIME_STAMP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
_COMMA = re.compile(r"-?\d+,\d+")  # a decimal comma
_DEFAULTS = {"device_conf_file": "resampled"}  # FedScale's /tmp/client.cfg is a file that nobody has


def fedscale_actions() -> dict[str, argparse.Action]:
    """Return the argparse action of each key of FedScale's config_parser."""
    parser = compat.fedscale_parser()
    return {option[2:]: action for action in parser._actions for option in action.option_strings
            if option.startswith("--") and option != "--help"}  # fmt: skip


def fedscale_arguments(
    settings: Mapping[str, Any], actions: Mapping[str, argparse.Action], where: Callable[[str], str]
) -> argparse.Namespace:
    """Return every argument of FedScale: the values of ``settings``, by key, in their types, and defaults.

    UserError for a value of another type or out of its range; ``where`` names the source of a key.
    """
    values = {action.dest: action.default for action in actions.values()}
    values["use_cuda"] = True
    values.update(_DEFAULTS)
    values.update(_sample_mode_defaults(settings.get("sample_mode", "random"), where))
    for key, value in settings.items():
        try:
            values[actions[key].dest] = _typed(key, value, actions[key])
        except (TypeError, ValueError, OverflowError):
            sentence = f"{where(key)}: key {key!r} is {value!r:.100}; it must be {_kind(key, actions[key])}"
            point = isinstance(value, str) and _COMMA.fullmatch(value)
            raise UserError(sentence + (f", as in {value.replace(',', '.')}" if point else "")) from None
        choices = actions[key].choices
        if choices and values[actions[key].dest] not in choices:
            raise UserError(f"{where(key)}: key {key!r} is {value!r}; it may be {', '.join(map(str, choices))}")
    for key, only in _ONLY.items():
        if values[key] != only:
            raise UserError(f"{where(key)}: key {key!r} is {values[key]!r}; this version has only {only!r}")
    for key in _POSITIVE:
        if not (math.isfinite(values[key]) and values[key] > 0):
            raise UserError(f"{where(key)}: key {key!r} is {values[key]!r}; it must be above zero")
    for key, (least, most) in _RANGES.items():
        if not least <= values[key] <= most or math.isinf(values[key]):
            span = f"lie in {least}..{most}" if math.isfinite(most) else f"be at least {least}"
            raise UserError(f"{where(key)}: key {key!r} is {values[key]!r}; it must {span}")
    for key in _DECAYS:
        if not 0 <= values[key] < 1:
            raise UserError(f"{where(key)}: key {key!r} is {values[key]!r}; it must be at least 0 and below 1")
    for key, action in actions.items():
        if action.type is float and not math.isfinite(values[action.dest]):
            raise UserError(f"{where(key)}: key {key!r} is {values[action.dest]!r}; it must be a finite number")
    if not 0 <= int(values["ps_port"]) < 65536:
        raise UserError(
            f"{where('ps_port')}: key 'ps_port' is {values['ps_port']!r}; it must lie in 0..65535 (0 picks a free one)"
        )
    if not _TIME_STAMP.fullmatch(values["time_stamp"]):
        raise UserError(
            f"{where('time_stamp')}: key 'time_stamp' is {values['time_stamp']!r:.100}; it must be a folder's name of "
            "1 to 100 letters, digits, '_', '-', '.' and ':', and begin with a letter, a digit or '_'"
        )
    for key in _PATH_KEYS:
        if values[key] is not None:
            values[key] = os.path.expanduser(values[key])
    values["data_set"] = data_set_name(values["data_set"])
    return compat.complete_arguments(argparse.Namespace(**values))


def default_of(key: str, action: argparse.Action) -> Any:
    """Return the default of a FedScale key, which this package changes for few."""
    default = _DEFAULTS.get(key, action.default)
    return _boolean(default) if _is_boolean(key, action) else default


def allowed(key: str, action: argparse.Action) -> str:
    """Describe the values of a FedScale key in the words of :func:`fedscale_ext.util.ranges.values`."""
    if key in _ONLY:
        return str(_ONLY[key])
    if key == "sample_mode":
        return ", ".join(_SAMPLE_MODES)
    if action.choices:
        return ", ".join(map(str, action.choices))
    if _is_boolean(key, action):
        return values(bool)
    least, most = _RANGES.get(key, (None, None))
    positive = key in _POSITIVE
    limits = Range(None if positive else least, None if most == math.inf else most, above=0 if positive else None)
    return values(action.type if action.type in (int, float) else str, [limits])


def _sample_mode_defaults(mode: Any, where: Callable[[str], str]) -> dict[str, Any]:
    known = str(expanded("sample_mode", mode))
    if known not in _SAMPLE_MODES:
        guess = did_you_mean(known, _SAMPLE_MODES)
        location = where("sample_mode")
        raise UserError(f"{location}: key 'sample_mode' is {mode!r:.100}; it may be {', '.join(_SAMPLE_MODES)}{guess}")
    return _SAMPLE_MODES[known]


def _typed(key: str, value: Any, action: argparse.Action) -> Any:
    value = or_none(expanded(key, value))
    if value is None:
        if action.default is None:
            return None
        raise ValueError
    if _is_boolean(key, action):
        return _boolean(value)
    if action.nargs == "+":
        words = (
            value
            if isinstance(value, list)
            else str(value).replace("[", " ").replace("]", " ").replace(",", " ").split()
        )
        return [action.type(word) for word in words]  # type: ignore[operator, misc]
    if isinstance(value, (bool, list, dict)):
        raise ValueError
    if key == "ps_port" and value == "auto":
        return "0"
    if action.type is int or key == "ps_port":
        number = float(value)
        if number != int(number):
            raise ValueError
        return int(number) if action.type is int else str(int(number))
    return action.type(value) if callable(action.type) else str(value)


def _kind(key: str, action: argparse.Action) -> str:
    """What a key's value must be, in words."""
    if key == "ps_port":
        return "a whole number, or auto"
    if _is_boolean(key, action):
        return KINDS["bool"]
    return KINDS.get(getattr(action.type, "__name__", ""), KINDS["string"])


def _is_boolean(key: str, action: argparse.Action) -> bool:
    return key == "use_cuda" or action.type is bool or action.nargs == 0


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "yes", "on", "1"):
        return True
    if text in ("false", "no", "off", "0"):
        return False
    raise ValueError


def or_none(value: Any) -> Any:
    """Return None for the texts ``None`` and ``null`` of a command line, else ``value``."""
    return None if isinstance(value, str) and value in ("None", "null") else value


def expanded(key: str, value: Any) -> Any:
    """Return ``value`` with its $VARIABLES expanded if it is text; UserError for a variable that is not set."""
    if not isinstance(value, str):
        return value
    text = os.path.expandvars(value)
    missing = re.search(r"\$\{?([A-Za-z_]\w*)", text)
    if missing:
        raise UserError(f"key {key!r} names ${missing[1]}, which is not set in the environment: export it first")
    return text
