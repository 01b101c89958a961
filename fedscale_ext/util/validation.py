"""What a pydantic ValidationError says to a user: which key, and what its value must be."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# what a value must be, by the first word of pydantic's error types (int_parsing, int_from_float), or a type's name
KINDS = {
    "bool": "True or False",
    "dict": "keys with values",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "model": "keys with values",
    "string": "text",
    "tuple": "a list, as in [1, 2]",
}
Fault = tuple[str, Any, str]
"""A wrong key, its value, and what that must be."""

_BRANCHES = ("bool", "float", "int", "str")  # pydantic names a union's member after the key
_EXPECTED = "Input should be "
_MUST = "it must be "


def first_fault(error: ValidationError) -> Fault:
    """Return the first wrong key, its value, and a requirement such as ``it must be a whole number``.

    Dots join the parts of a key. An index of a list stands in brackets (``groups[0]``).
    """
    faults = error.errors(include_url=False)
    key = _key(faults[0])
    requirements = list(dict.fromkeys(_requirement(fault) for fault in faults if _key(fault) == key))
    requirement = " or ".join([requirements[0], *(each.removeprefix(_MUST) for each in requirements[1:])])
    return key, faults[0]["input"], requirement


@contextmanager
def faults_raise(error: type[Exception], beginning: str = "", parent: str = "") -> Iterator[None]:
    """Raise ``error`` with one sentence instead of a ValidationError: beginning, first wrong key, and requirement.

    Args:
        error: Class of the error.
        beginning: Text before the key.
        parent: Key of the value that is validated, where it is a part of others.

    """
    try:
        yield
    except ValidationError as invalid:
        key, _, requirement = first_fault(invalid)
        raise error(f"{beginning}{parent + key or 'all of it'}: {requirement}") from None


def truth_for_number(hints: Mapping[str, Any], values: Mapping[str, Any]) -> Fault | None:
    """Return the first truth value where a number belongs (pydantic takes it as 0 or 1); None if there is none.

    Args:
        hints: Types by key.
        values: Values by key; those of lists count one by one.

    """
    return next(filter(None, (_truth(key, hints[key], value) for key, value in values.items())), None)


def _truth(key: str, hint: Any, value: Any) -> Fault | None:
    kinds = list(_members(hint))
    if isinstance(value, list | tuple):
        parts = [part for kind in kinds if get_origin(kind) in (list, tuple) for part in get_args(kind)]
        of_a_part = Union[tuple(part for part in parts if part is not Ellipsis)] if parts else Any  # noqa: UP007
        return next(filter(None, (_truth(f"{key}[{at}]", of_a_part, one) for at, one in enumerate(value))), None)
    if not isinstance(value, bool) or bool in kinds or not {int, float}.intersection(kinds):
        return None
    words = [KINDS[name] for kind, name in ((float, "float"), (int, "int"), (str, "string")) if kind in kinds]
    return key, value, _MUST + " or ".join(words)


def _members(hint: Any) -> Iterator[Any]:
    """The types of a union, without what is beside them in annotations; for words, the types of these."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from _members(get_args(hint)[0])
    elif origin in (Union, UnionType):
        for each in get_args(hint):
            yield from _members(each)
    elif origin is Literal:
        yield from map(type, get_args(hint))
    else:
        yield hint


def _key(fault: ErrorDetails) -> str:
    key = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            key += f"[{part}]"
        elif not key or not (part in _BRANCHES or "[" in part):
            key += f".{part}"
    return key.removeprefix(".")


def _requirement(fault: ErrorDetails) -> str:
    kind, message = fault["type"], fault["msg"]
    first = kind.split("_")[0]
    if first in KINDS:
        return _MUST + KINDS[first]
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of models, of dataclasses
        return "there is no such key"
    if message.startswith(_EXPECTED):
        return _MUST + message.removeprefix(_EXPECTED)
    return message[:1].lower() + message[1:]
