"""A method's hyperparameters from a job's ``<method>.<name>`` keys."""

import dataclasses
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedscale_ext.config import JobConfig
from fedscale_ext.errors import UserError, did_you_mean


def make_params(params: type, config: JobConfig) -> Any:
    """An instance of the frozen dataclass ``params`` with the job's values, validated.

    A class method ``job_defaults(config) -> dict`` of the dataclass, where there is one, gives the
    defaults that depend on the rest of the job (a data set, a key of FedScale's).
    """
    method = config.job.method
    given = config.method_params(method)
    names = [field.name for field in dataclasses.fields(params)]
    for name in given:
        if name not in names:
            known = did_you_mean(name, names) or f"; it has {', '.join(names) or 'no hyperparameters'}"
            raise UserError(f"method {method} has no hyperparameter {method}.{name}{known}")
    defaults = params.job_defaults(config) if hasattr(params, "job_defaults") else {}
    try:
        return TypeAdapter(params).validate_python({**defaults, **given})
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, (method, *first["loc"])))
        raise UserError(f"key {key!r} is {first['input']!r}: {first['msg'].lower()}") from None
