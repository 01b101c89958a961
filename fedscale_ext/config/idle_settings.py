"""Settings that were given and that no job reads, because of others: a table of conditions, told in one note.

Conditions among a method's own keys are in :mod:`fedscale_ext.config.method_switches`.
"""

from collections.abc import Callable, Iterable, Mapping
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
_LEARN_FROM_PUBLIC = ("dsfl", "feddf", "fedet", "fedgems", "fedmd", "moss")
_OORT = ("exploration_factor", "exploration_decay", "exploration_min", "sample_window", "clip_bound", "cut_off_util",
         "round_threshold", "round_penalty", "pacer_delta", "pacer_step", "blacklist_rounds",
         "blacklist_max_len")  # fmt: skip

_OF_FEDSCALES_PARSER = tuple(
    "adam_epsilon backbone backend block_size cfg_file clf_block_size clip_threshold clock_factor conf_path "
    "connection_timeout data_cache dump_epoch embedding_file epsilon exploration_alpha finetune gamma hidden-layers "
    "hidden-size labels-path line_by_line malicious_factor max_concurrency max_staleness memory_capacity mlm "
    "mlm_probability model_size model_zoo n_actions n_states no-bidirectional noise-dir noise-max noise-min noise-prob "
    "noise_factor num_loaders overwrite_cache rnn-type sample-rate save_checkpoint spec-augment speed-volume-perturb "
    "target_delta target_replace_iter test-manifest test_output_dir test_size_file train-manifest train_size_file "
    "train_uniform vocab_tag_size vocab_token_size window window-size window-stride".split()
)
_FEDSCALES_ALONE = (*_OF_FEDSCALES_PARSER, *(key.replace("-", "_") for key in _OF_FEDSCALES_PARSER if "-" in key))
"""Keys of FedScale's parser that only FedScale's own processes read; with underscores, as header.json has them."""

_PRIVACY = tuple(key for key in JobKeys.model_fields if key.startswith("dp_") and key != "dp_noise_multiplier")

Settings = Mapping[str, Any]
"""All settings of a job by flat keys, as those of :meth:`JobConfig.echo`."""

Reason = tuple[str, str]
"""A setting, and its value that leaves other settings unread; or a sentence, and no value."""


def _without_public(job: Settings) -> Reason | None:
    return None if job["public_samples"] else ("public_samples", "0")


def _learns_without_public(job: Settings) -> Reason | None:
    method = job["method"]
    return (_METHOD, method) if is_built_in(method) and method not in _LEARN_FROM_PUBLIC else None


def _leaves_public_dir(job: Settings) -> Reason | None:
    return _learns_without_public(job) if job["public_dir"] else None  # without one, all clients lose samples


def _balanced(job: Settings) -> Reason | None:
    classes = job["public_classes"]
    return None if classes == "dirichlet" else ("public_classes", classes)


def _by_deadline(job: Settings) -> Reason | None:
    rule = job["capacity_rule"]
    return None if rule == "computation" else ("capacity_rule", rule)


def _unguided(job: Settings) -> Reason | None:
    mode = job["sample_mode"]
    return ("sample_mode", mode) if mode == "random" else None


def _without_yogi(job: Settings) -> Reason | None:
    if job["method"] != "fedtrans":
        return _of_another_method("fedyogi", job)
    optimizer = str(job.get("fedtrans.server_opt", "avg"))
    return ("fedtrans.server_opt", optimizer) if optimizer == "avg" else None


def _of_another_method(reader: str, job: Settings) -> Reason | None:
    method = job["method"]  # one of another package may read any key of FedScale's
    return (_METHOD, method) if method != reader and is_built_in(method) else None


def _set_by_method_key(key: str, job: Settings) -> Reason | None:
    is_set = key.partition(".")[0] == job["method"] and key in job
    return (key, str(job[key])) if is_set else None


def _clipped_by_method(key: str, job: Settings) -> Reason | None:
    # fine-tuning clips by the job's norm, and so do rounds where the method's is taken away
    is_used = job["personalise_epochs"] > 0 or job.get(key) is None
    return None if is_used else _set_by_method_key(key, job)


def _by_masked_loss(job: Settings) -> Reason | None:
    if job["personalise_epochs"]:  # fine-tuning masks only where the job says so
        return None
    method = job["method"]  # a loss with `mask` leaves out the classes that a client lacks
    masked = method in _MASK_DEFAULTS and bool(job.get(f"{method}.mask", _MASK_DEFAULTS[method]))
    return (f"{method}.mask", "true") if masked else None


def _without_trace(job: Settings) -> Reason | None:
    files = (job["device_conf_file"], job["device_avail_file"])
    return None if any(file not in (None, RESAMPLED) for file in files) else ("device_conf_file", RESAMPLED)


def _running_statistics(job: Settings) -> Reason | None:
    statistics = job["bn_statistics"]  # under auto the method decides, and its job tells
    return ("bn_statistics", statistics) if statistics == "running" else None


def _never_converged(job: Settings) -> Reason | None:
    return ("stop_gain", "null") if job["stop_gain"] is None else None


def _too_patient(job: Settings) -> Reason | None:
    patience, rounds = job["stop_patience"], job["rounds"]
    is_late = job["stop_gain"] is not None and patience >= rounds
    return (f"stop_patience, {patience}, is not below rounds, {rounds}", "") if is_late else None


def _paces_too_late(job: Settings) -> Reason | None:
    step, rounds = job["pacer_step"], job["rounds"]  # the first round explores only
    is_late = job["sample_mode"] != "random" and rounds <= 2 * step + 1
    return (f"rounds, {rounds:g}, is not above 2 pacer_step + 1, {2 * step + 1:g}", "") if is_late else None


def _without_privacy(job: Settings) -> Reason | None:
    return ("dp_noise_multiplier", "null") if job["dp_noise_multiplier"] is None else None


def _by_the_data(job: Settings) -> Reason | None:
    return ("the data tell classes and shape", "") if is_built_in(job["method"]) else None


def _loss_of_qfedavg(job: Settings) -> Reason | None:
    return (_METHOD, "qfedavg") if job["method"] == "qfedavg" else None


def _never_blacklisted(job: Settings) -> Reason | None:
    rounds = job["blacklist_rounds"]
    return ("blacklist_rounds", str(rounds)) if rounds < 0 else None


def _constant_rate(job: Settings) -> Reason | None:
    factor = job["decay_factor"]
    return ("decay_factor", f"{factor:g}") if factor == 1 and is_built_in(job["method"]) else None


def _decays_too_late(job: Settings) -> Reason | None:
    every, rounds = job["decay_round"], job["rounds"]
    is_late = every > rounds and is_built_in(job["method"])
    return (f"decay_round, {every:g}, is above rounds, {rounds}", "") if is_late else None


def _by_cosine(job: Settings) -> Reason | None:
    schedule = job.get("fednas.schedule", "cosine")
    return ("fednas.schedule", schedule) if job["method"] == "fednas" and schedule == "cosine" else None


def _frozen_weights(job: Settings) -> Reason | None:
    return ("fedmask's clients learn scores, at fedmask.lr", "") if job["method"] == "fedmask" else None


def _read_by_fedscale_alone(job: Settings) -> Reason | None:
    return ("only FedScale's own code reads that", "") if is_built_in(job["method"]) else None


def _decays_by_another_key(job: Settings) -> Reason | None:
    return ("the key of clients' steps is client_weight_decay", "") if is_built_in(job["method"]) else None


#: Keys, and why a job does not read them; None where this is no reason. One of several rows is enough.
_TABLE: tuple[tuple[tuple[str, ...], Callable[[Settings], Reason | None]], ...] = (
    (("public_fraction", "public_classes", "public_alpha"), _without_public),
    (("public_fraction",), _learns_without_public),
    (("public_dir", "public_samples", "public_classes", "public_alpha"), _leaves_public_dir),
    (("public_alpha",), _balanced),
    (("capacity_spread",), _by_deadline),
    (_OORT, _unguided),
    (("blacklist_max_len",), _never_blacklisted),
    (("decay_round",), _constant_rate),
    (("decay_factor",), _decays_too_late),
    (("decay_factor", "decay_round", "min_learning_rate"), _by_cosine),
    (("learning_rate", "decay_factor", "decay_round", "min_learning_rate", "client_weight_decay"), _frozen_weights),
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
    (("stop_gain", "stop_unit"), _too_patient),
    (("pacer_delta", "pacer_step", "pacer_rule"), _paces_too_late),
    (_PRIVACY, _without_privacy),
    (("num_classes", "input_dim", "output_dim", "input_shape"), _by_the_data),
    (("loss_decay",), _loss_of_qfedavg),
    (("qfed_q",), partial(_of_another_method, "qfedavg")),
    (("qfed_q",), partial(_set_by_method_key, "qfedavg.q")),
    (_FEDSCALES_ALONE, _read_by_fedscale_alone),
    (("weight_decay",), _decays_by_another_key),
)


def _reason(job: Settings, key: str) -> Reason | None:
    """Why a job does not read a key; None where it does."""
    method, dot, name = key.partition(".")
    if dot and method != job["method"]:
        return _METHOD, job["method"]
    if dot:
        params = {key.removeprefix(f"{method}."): value for key, value in job.items() if key.startswith(f"{method}.")}
        return switched_off(method, name, params)
    reasons = (reason(job) for keys, reason in _TABLE if key in keys)
    return next((reason for reason in reasons if reason is not None), None)


def is_unread(job: Settings, key: str) -> bool:
    """Tell whether a job with these settings leaves one of them unread."""
    return _reason(job, key) is not None


def _reasons(config: JobConfig, keys: Iterable[str]) -> dict[str, Reason | None]:
    """Why a job does not read keys; None for those that it does."""
    job = config.echo()
    reasons = {key: _reason(job, key) for key in keys}
    if "gradient_policy" in reasons and "method" in config.given:  # it stands for a method where none is named
        reasons["gradient_policy"] = "method", config.job.method
    return reasons


def read_settings(config: JobConfig) -> dict[str, Any]:
    """Return the settings that a job reads, as JSON, with their defaults: jobs with equal ones are equal."""
    job = config.echo()
    return {key: job[key] for key, reason in _reasons(config, job).items() if reason is None}


def idle_keys(*configs: JobConfig) -> str | None:
    """Describe the configured keys that none of these jobs reads, with the reasons; None where there are none."""
    reasons_of = [_reasons(config, config.given) for config in configs]
    unread: dict[str, list[str]] = {}  # why -> keys
    for key in dict.fromkeys(key for reasons in reasons_of for key in reasons):
        reasons = [each[key] for each in reasons_of if key in each]
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
