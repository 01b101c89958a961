"""Checks of what a method's hooks return: each slip of its author is one sentence that names method and hook."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import ConfigDict, Field, ValidationError, create_model

from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.client_config import OVERRIDABLE
from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.core.types import EvaluationPlan, State, WorkItem, is_personal, members
from fedscale_ext.metrics.job_folder.jsonable import plain
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.util.validation import first_fault

_FIELDS: dict[str, Any] = {
    **{name: (key.annotation, key) for name, key in JobKeys.model_fields.items() if name in OVERRIDABLE},
    # no keys of JobKeys; None: not overridden
    "batch_size": (Annotated[int, Field(ge=1)], None),
    "local_steps": (Annotated[int, Field(ge=1)], None),
    "learning_rate": (Annotated[float, Field(ge=0)], None),
    "held_out": (Annotated[float, Field(ge=0, lt=1)], None),
}
_Overrides = create_model("_Overrides", __config__=ConfigDict(strict=True, allow_inf_nan=False), **_FIELDS)


def checked_candidates(answer: Any, method: str, clients: int) -> tuple[np.ndarray, int]:
    """Return what ``candidates`` did: bool [clients], and a number from 0; UserError for anything else."""
    hook = f"candidates of method {method} returns"
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise UserError(f"{hook} {_shown(answer)}; it must be a bool array of who may be selected, and how many count")
    able, target = answer
    if not isinstance(able, np.ndarray) or able.dtype != bool or able.shape != (clients,):
        raise UserError(f"{hook} {_shown(able)}; it must be a bool array with an entry for each of {clients} clients")
    if not isinstance(target, int | np.integer) or target < 0:
        raise UserError(f"{hook} {_shown(target)} as how many count; it must be a whole number, at least 0")
    return able, int(target)


def checked_items(answer: Any, method: str, pool: ModelPool, clients: int) -> list[WorkItem]:
    """Return the items of ``assign`` as a list.

    UserError where one names a model that is not in the pool, none of the clients 1..N (0 would pass for the last
    one), or settings that no client can have; or where a client has two items of a model.
    """
    hook = f"assign of method {method}"
    if not isinstance(answer, Iterable):
        raise UserError(f"{hook} returns {_shown(answer)}; it must be a list of WorkItem")
    items, seen, checked = list(answer), set(), set()
    for item in items:
        if not isinstance(item, WorkItem):
            raise UserError(f"{hook} returns a value of type {type(item).__name__} in its list; it must be a WorkItem")
        if not isinstance(item.client, int) or not 1 <= item.client <= clients:
            raise UserError(f"{hook} names client {item.client!r}, and clients are 1 to {clients}")
        if item.model not in pool:
            raise UserError(f"{hook} names model {item.model!r} for client {item.client}{_lacks(pool, item.model)}")
        if (item.client, item.model) in seen:
            raise UserError(
                f"{hook} has two items of model {item.model!r} for client {item.client}; a client trains a model once "
                "in a round"
            )
        seen.add((item.client, item.model))
        for settings, check in ((item.objective, _check_objective), (item.overrides, _check_overrides)):
            if settings and id(settings) not in checked:  # many clients share one, as a rule
                check(f"{hook} gives client {item.client}", settings)
                checked.add(id(settings))
    return items


def _check_objective(beginning: str, objective: Mapping[str, Any]) -> None:
    try:
        json.dumps(dict(objective), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"{beginning} an objective that is no JSON: {error}") from None


def _check_overrides(beginning: str, overrides: Mapping[str, Any]) -> None:
    try:
        _Overrides.model_validate(overrides)
    except ValidationError as error:
        key, value, requirement = first_fault(error)
        raise UserError(f"{beginning} the override {key}={value!r}; {requirement}") from None


def checked_weight(weight: Any, method: str) -> float:
    """Return what ``weight`` did as a Python number; UserError unless it is a finite one from 0."""
    if isinstance(weight, int | float | np.number) and 0 <= weight < math.inf:
        return weight.item() if isinstance(weight, np.number) else weight
    raise UserError(f"weight of method {method} returns {_shown(weight)}; it must be a finite number, at least 0")


def check_plan(plan: EvaluationPlan, method: str, pool: ModelPool, clients: int, personal_models: bool) -> None:
    """UserError where ``evaluation_plan`` serves other than all clients, or names a model that is not in the pool; or
    clients' own versions, where none are kept (``personal_models`` false)."""
    if not isinstance(plan, EvaluationPlan):
        raise UserError(f"evaluation_plan of method {method} returns {_shown(plan)}; it must be an EvaluationPlan")
    serve, named = (f"evaluation_plan().{field} of method {method}" for field in ("serve", "named"))
    if isinstance(plan.serve, str) or not isinstance(plan.serve, Sized):
        raise UserError(f"{serve} is {_shown(plan.serve)}; it must be a list of keys")
    if not isinstance(plan.named, Mapping):
        raise UserError(f"{named} is {_shown(plan.named)}; it must be a dict of keys by title")
    if len(plan.serve) != clients:
        raise UserError(f"{serve} has {len(plan.serve)} entries, and there are {clients} clients")
    first: dict[str, int] = {}  # client by key: there are fewer keys than clients, as a rule
    for client, key in enumerate(plan.serve, 1):
        if not isinstance(key, str):
            raise UserError(f"{serve} has {_shown(key)} for client {client}; it must be a model's key")
        first.setdefault(key, client)
    uses = [(serve, key, f"client {client}") for key, client in first.items()]
    uses += [(named, key, repr(title)) for title, key in plan.named.items()]
    for hook, key, whom in uses:
        if not isinstance(key, str):
            raise UserError(f"{hook} has {_shown(key)} for {whom}; it must be a model's key")
        for member in members(key):
            if member not in pool:
                raise UserError(f"{hook} names model {member!r} for {whom}{_lacks(pool, member)}")
        if is_personal(key) and not personal_models:
            raise UserError(
                f"{hook} names {key!r} for {whom}, and client_tensors keeps no ClientState, which personal versions "
                "are made of"
            )


def checked_text(answer: Any, hook: str, method: str) -> str | None:
    """Return what ``finished`` or ``phase`` did; UserError unless it is text or None."""
    if answer is None or isinstance(answer, str):
        return answer
    raise UserError(f"{hook} of method {method} returns {_shown(answer)}; it must be text or None")


def checked_figures(answer: Any, hook: str, method: str) -> Mapping[str, Any]:
    """Return what ``lineage`` or ``results`` did; UserError unless a summary can hold it."""
    hook = f"{hook} of method {method} returns"
    if not isinstance(answer, Mapping):
        raise UserError(f"{hook} {_shown(answer)}; it must be a dict of JSON values")
    try:
        plain(answer)
    except (TypeError, ValueError) as error:
        raise UserError(f"{hook} what is no JSON: {error}") from None
    return answer


def check_state(answer: Any, method: str) -> None:
    """UserError unless ``state`` returned a dict of tensors and another dict, whose JSON is checked as it is written
    (:func:`state_written`)."""
    hook = f"state of method {method} returns"
    if not isinstance(answer, tuple | list) or len(answer) != 2 or not all(isinstance(x, Mapping) for x in answer):
        raise UserError(f"{hook} {_shown(answer)}; it must be a dict of tensors, and a dict of JSON values")
    tensors: State = answer[0]
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise UserError(f"{hook} {_shown(tensor)} as {name!r}; it must be a tensor")


@contextmanager
def state_written(method: str) -> Iterator[None]:
    """Report what JSON refuses of a job's state as a slip of the hook ``state``: all else of it is this package's."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise UserError(f"state of method {method} returns what a checkpoint cannot hold: {error}") from error


def _shown(value: Any) -> str:
    """Name a wrong value in a sentence."""
    if value is None or isinstance(value, bool | int | float | str | np.number):
        return f"{value!r:.60}"
    if isinstance(value, np.ndarray | torch.Tensor):
        kind = "an array" if isinstance(value, np.ndarray) else "a tensor"
        return f"{kind} of shape {list(value.shape)} in {value.dtype}"
    return f"a value of type {type(value).__name__}"


def _lacks(pool: ModelPool, key: str) -> str:
    known = [model.key for model in pool]
    hint = meant_or_known(key, known) if known else "; it is empty: init_state puts the first models there"
    return f", which the pool lacks{hint}"
