"""What a pydantic ValidationError says to a user: which key, and what its value must be."""

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

# what a value must be, by the first word of pydantic's error types (int_parsing, int_from_float), or a type's name
KINDS = {
    "bool": "True or False",
    "float": "a number",
    "int": "a whole number",
    "model": "keys with values",
    "string": "text",
    "tuple": "a list, as in [1, 2]",
}
_BRANCHES = ("bool", "float", "int", "str")  # pydantic names a union's member after the key
_EXPECTED = "Input should be "
_MUST = "it must be "


def first_fault(error: ValidationError) -> tuple[str, Any, str]:
    """Return the first wrong key, its value, and a requirement such as ``it must be a whole number``.

    Dots join the parts of a key. An index of a list stands in brackets (``groups[0]``).
    """
    faults = error.errors(include_url=False)
    key = _key(faults[0])
    requirements = list(dict.fromkeys(_requirement(fault) for fault in faults if _key(fault) == key))
    requirement = " or ".join([requirements[0], *(each.removeprefix(_MUST) for each in requirements[1:])])
    return key, faults[0]["input"], requirement


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
    if kind == "extra_forbidden":
        return "there is no such key"
    if message.startswith(_EXPECTED):
        return _MUST + message.removeprefix(_EXPECTED)
    return message[:1].lower() + message[1:]
