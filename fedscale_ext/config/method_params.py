"""A method's hyperparameters from a job's ``<method>.<name>`` keys."""

import dataclasses
from collections.abc import Iterable
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.config.method_switches import WORDS
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError, did_you_mean, enumerated
from fedscale_ext.util.ranges import check_ranges
from fedscale_ext.util.validation import first_fault, truth_for_number


def make_params(params: type, config: JobConfig) -> Any:
    """Make an instance of the frozen dataclass ``params`` from the job's values; types and ranges are checked.

    The dataclass may have three methods. The class method ``job_defaults(config) -> dict`` returns defaults that depend
    on the rest of the job, such as the data set. ``missing_settings(config) -> list`` is what UserError lists.
    ``follows_rounds(rounds) -> str`` is for :func:`changed_rounds`.

    UserError also for a misspelt key of another method. Its value does not bind this job, but a comparison of several
    methods would otherwise ignore the key in each job.
    """
    method = config.job.method
    settings = config.method_params()
    for other, values in config.params_by_method().items():
        _check_names(other, values, params if other == method else method_class(other).Params)  # type: ignore[attr-defined]
    defaults = params.job_defaults(config) if hasattr(params, "job_defaults") else {}
    hints = get_type_hints(params)
    settings = {name: _word(value, hints[name]) for name, value in settings.items()}
    try:
        instance: Any = TypeAdapter(params).validate_python({**defaults, **settings})
        fault = truth_for_number(hints, settings)
    except ValidationError as error:
        fault = first_fault(error)
    if fault is not None:
        key, value, requirement = fault
        raise UserError(f"key '{method}.{key}' is {value!r}; {requirement}")
    check_ranges(instance, method)
    if hasattr(instance, "missing_settings") and (missing := instance.missing_settings(config)):
        raise UserError(f"a job of method {method} lacks {enumerated(missing)}")
    return instance


def changed_rounds(before: int, config: JobConfig) -> str:
    """Describe a change of ``rounds`` that earlier rounds of the job depend on; empty where none do.

    A job goes on with more rounds as if it had had them from the start. It cannot where its method divides ``rounds``
    into stages. The method's ``Params.follows_rounds(rounds)`` then names the setting by which it does in a job of so
    many rounds.

    Args:
        before: ``rounds`` of the run that is to go on.
        config: The job as it is configured now.

    """
    now = config.fedscale.rounds
    params: type = method_class(config.job.method).Params  # type: ignore[attr-defined]
    if before == now or not hasattr(params, "follows_rounds"):
        return ""
    setting = make_params(params, config).follows_rounds(before)
    return f"rounds was {before} and is {now}, which {setting} follows" if setting else ""


def _check_names(method: str, keys: Iterable[str], params: type) -> None:
    """Raise UserError for the first of the names ``keys`` that is no field of the dataclass ``params`` of a method."""
    names = [field.name for field in dataclasses.fields(params)]
    for name in keys:
        if name not in names:
            others = f"; it has {', '.join(names) or 'no hyperparameters'}"
            known = did_you_mean(name, names, f"{method}.") or others
            raise UserError(f"method {method} has no hyperparameter {method}.{name}{known}")


def _word(value: Any, hint: Any) -> Any:
    """The word of a choice that was read as a truth value or as nothing."""
    if get_origin(hint) is Literal:
        for read, word in WORDS:
            if value is read and word in get_args(hint):
                return word
    return value
