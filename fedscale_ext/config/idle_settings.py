"""Settings that were given and that no job reads, because of others: a table of conditions, told in one note.

Conditions among a method's own keys are in :mod:`fedscale_ext.config.method_switches`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.keys import RESAMPLED, JobKeys
from fedscale_ext.config.method_switches import switched_off
from fedscale_ext.config.methods import is_built_in
from fedscale_ext.core.errors import listed

_NAMED = 3  # values that a note names for a reason
_METHOD = "the method"
_MOMENTS = ("eta", "tau", "beta", "beta2")
_MASK_DEFAULTS = {"heterofl": True, "fedrolex": False}  # of the key `mask`, by method that has one
_OORT = ("exploration_factor", "exploration_decay", "exploration_min", "sample_window", "clip_bound", "cut_off_util",
         "round_threshold", "round_penalty", "pacer_delta", "pacer_step", "blacklist_rounds",
         "blacklist_max_len")  # fmt: skip

_PRIVACY = tuple(key for key in JobKeys.model_fields if key.startswith("dp_") and key != "dp_noise_multiplier")

Reason = tuple[str, str]
"""A setting, and its value that leaves other settings unread; or a sentence, and no value."""


def _without_public(config: JobConfig) -> Reason | None:
    return None if config.job.public_samples else ("public_samples", "0")


def _balanced(config: JobConfig) -> Reason | None:
    classes = config.job.public_classes
    return None if classes == "dirichlet" else ("public_classes", classes)


def _by_deadline(config: JobConfig) -> Reason | None:
    rule = config.job.capacity_rule
    return None if rule == "computation" else ("capacity_rule", rule)


def _unguided(config: JobConfig) -> Reason | None:
    mode = config.fedscale.sample_mode
    return ("sample_mode", mode) if mode == "random" else None


def _without_yogi(config: JobConfig) -> Reason | None:
    if config.job.method != "fedtrans":
        return _of_another_method("fedyogi", config)
    optimizer = str(config.method_params().get("server_opt", "avg"))
    return ("fedtrans.server_opt", optimizer) if optimizer == "avg" else None


def _of_another_method(reader: str, config: JobConfig) -> Reason | None:
    method = config.job.method  # one of another package may read any key of FedScale's
    return (_METHOD, method) if method != reader and is_built_in(method) else None


def _set_by_method_key(key: str, config: JobConfig) -> Reason | None:
    is_set = key.partition(".")[0] == config.job.method and key in config.params
    return (key, str(config.params[key])) if is_set else None


def _clipped_by_method(key: str, config: JobConfig) -> Reason | None:
    # fine-tuning clips by the job's norm, and so do rounds where the method's is taken away
    is_used = config.job.personalise_epochs > 0 or config.params.get(key) is None
    return None if is_used else _set_by_method_key(key, config)


def _by_masked_loss(config: JobConfig) -> Reason | None:
    if config.job.personalise_epochs:  # fine-tuning masks only where the job says so
        return None
    method = config.job.method  # a loss with `mask` leaves out the classes that a client lacks
    masked = method in _MASK_DEFAULTS and bool(config.method_params().get("mask", _MASK_DEFAULTS[method]))
    return (f"{method}.mask", "true") if masked else None


def _without_trace(config: JobConfig) -> Reason | None:
    files = (config.fedscale.device_conf_file, config.fedscale.device_avail_file)
    return None if any(file not in (None, RESAMPLED) for file in files) else ("device_conf_file", RESAMPLED)


def _running_statistics(config: JobConfig) -> Reason | None:
    statistics = config.job.bn_statistics  # under auto the method decides, and its job tells
    return ("bn_statistics", statistics) if statistics == "running" else None


def _never_converged(config: JobConfig) -> Reason | None:
    return ("stop_gain", "null") if config.job.stop_gain is None else None


def _without_privacy(config: JobConfig) -> Reason | None:
    return ("dp_noise_multiplier", "null") if config.job.dp_noise_multiplier is None else None


def _by_the_data(config: JobConfig) -> Reason | None:
    return ("the data tell classes and shape", "") if is_built_in(config.job.method) else None


def _loss_of_qfedavg(config: JobConfig) -> Reason | None:
    return (_METHOD, "qfedavg") if config.job.method == "qfedavg" else None


def _never_blacklisted(config: JobConfig) -> Reason | None:
    rounds = config.fedscale.blacklist_rounds
    return ("blacklist_rounds", str(rounds)) if rounds < 0 else None


def _constant_rate(config: JobConfig) -> Reason | None:
    factor = config.fedscale.decay_factor
    return ("decay_factor", f"{factor:g}") if factor == 1 and is_built_in(config.job.method) else None


def _decays_too_late(config: JobConfig) -> Reason | None:
    every, rounds = config.fedscale.decay_round, config.fedscale.rounds
    is_late = every > rounds and is_built_in(config.job.method)
    return (f"decay_round, {every:g}, is above rounds, {rounds}", "") if is_late else None


def _by_cosine(config: JobConfig) -> Reason | None:
    schedule = config.method_params().get("schedule", "cosine")
    return ("fednas.schedule", schedule) if config.job.method == "fednas" and schedule == "cosine" else None


def _method_named(config: JobConfig) -> Reason | None:
    return ("method", config.job.method) if "method" in config.given else None


#: Keys, and why a job does not read them; None where this is no reason. One of several rows is enough.
_TABLE: tuple[tuple[tuple[str, ...], Callable[[JobConfig], Reason | None]], ...] = (
    (("public_fraction", "public_classes", "public_alpha"), _without_public),
    (("public_alpha",), _balanced),
    (("capacity_spread",), _by_deadline),
    (_OORT, _unguided),
    (("blacklist_max_len",), _never_blacklisted),
    (("decay_round",), _constant_rate),
    (("decay_factor",), _decays_too_late),
    (("decay_factor", "decay_round", "min_learning_rate"), _by_cosine),
    (tuple(f"yogi_{name}" for name in _MOMENTS), _without_yogi),
    *(((f"yogi_{name}",), partial(_set_by_method_key, f"fedyogi.{name}")) for name in _MOMENTS),
    (("proxy_mu",), partial(_of_another_method, "fedprox")),
    (("proxy_mu",), partial(_set_by_method_key, "fedprox.mu")),
    *((("clip_norm",), partial(_clipped_by_method, f"{method}.clip_norm")) for method in _MASK_DEFAULTS),
    *((("mask_test",), partial(_set_by_method_key, f"{method}.mask_test")) for method in _MASK_DEFAULTS),
    (("own_classes",), _by_masked_loss),
    (("device_match",), _without_trace),
    (("bn_statistics_clients",), _running_statistics),
    (("stop_patience", "stop_unit"), _never_converged),
    (_PRIVACY, _without_privacy),
    (("num_classes", "input_dim", "output_dim", "input_shape"), _by_the_data),
    (("loss_decay",), _loss_of_qfedavg),
    (("gradient_policy",), _method_named),
)


def _reason(config: JobConfig, key: str) -> Reason | None:
    """Why a job does not read a key that it was given; None where it does."""
    method, dot, name = key.partition(".")
    if dot and method != config.job.method:
        return _METHOD, config.job.method
    if dot:
        return switched_off(method, name, config.method_params())
    reasons = (reason(config) for keys, reason in _TABLE if key in keys)
    return next((reason for reason in reasons if reason is not None), None)


def read_settings(config: JobConfig) -> dict[str, Any]:
    """Return the settings that a job reads, as JSON, with their defaults: jobs with equal ones are equal."""
    return {key: value for key, value in config.echo().items() if _reason(config, key) is None}


def idle_keys(*configs: JobConfig) -> str | None:
    """Describe the configured keys that none of these jobs reads, with the reasons; None where there are none."""
    unread: dict[str, list[str]] = {}  # why -> keys
    for key in dict.fromkeys(key for config in configs for key in config.given):
        reasons = [_reason(config, key) for config in configs if key in config.given]
        if None not in reasons:
            why = _words([reason for reason in reasons if reason is not None])
            unread.setdefault(why, []).append(key)
    if not unread:
        return None
    return "; ".join(
        f"{', '.join(keys)} {'does' if len(keys) == 1 else 'do'} nothing: {why}" for why, keys in unread.items()
    )


def _words(reasons: list[Reason]) -> str:
    values: dict[str, list[str]] = {}
    for setting, value in dict.fromkeys(reasons):
        values.setdefault(setting, []).append(value)
    return " and ".join(
        f"{setting}s are {listed(each, _NAMED)}" if setting == _METHOD and len(each) > 1 else
        f"{setting} is {listed(each, _NAMED)}" if each != [""] else setting
        for setting, each in values.items()
    )  # fmt: skip
