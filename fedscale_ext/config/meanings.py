"""Reads hyperparameters, with their meanings, from a method's dataclass and its docstring.

The docstring is in Google's style: a first line, paragraphs if any, and ``Attributes:`` with an entry per field. A
dataclass describes its own fields; those that it inherits are described by its base, unless it says more of them.
"""

import dataclasses
import inspect
import re
import textwrap
from typing import NamedTuple, get_type_hints

from fedscale_ext.config.method_switches import read_only_with
from fedscale_ext.util.ranges import value_text, values

# a name, its type if the author repeats it, and text that goes on in deeper lines
_ENTRY = re.compile(r"^(\w+)(?: \([^)\n]*\))?: (.*(?:\n +.*)*)", re.M)


class Hyperparameter(NamedTuple):
    """Texts on a hyperparameter: its name, the values that it may have, its default or "required", and its meaning."""

    name: str
    values: str
    default: str
    meaning: str


def hyperparameters(method: str, params: type) -> list[Hyperparameter]:
    """Return the hyperparameters of a method: each field of its dataclass ``params``."""
    result = []
    hints, texts = get_type_hints(params, include_extras=True), meanings(params)
    for field in dataclasses.fields(params):
        default = "required"
        if field.default is not dataclasses.MISSING:
            default = value_text(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = value_text(field.default_factory())
        meaning = f"{texts[field.name]} {read_only_with(method, field.name)}".rstrip()
        result.append(Hyperparameter(field.name, values(hints[field.name]), default, meaning))
    return result


def meanings(params: type) -> dict[str, str]:
    """Return the meaning of each field of the dataclass ``params``, as Markdown; empty for one without a meaning."""
    described = _described(params)
    return {field.name: described.get(field.name, "") for field in dataclasses.fields(params)}


def introduction(params: type) -> str:
    """Return the paragraphs of ``params`` between its first line and its entries, as Markdown; often empty."""
    paragraphs = _docstring(params).partition("\nAttributes:\n")[0].split("\n\n")[1:]
    return "\n\n".join(filter(None, map(_joined, paragraphs)))


def check_meanings(params: type) -> None:
    """Raise ValueError if a field of ``params`` has no meaning, or an entry is about no field."""
    fields = {field.name for field in dataclasses.fields(params)}
    described = set(_described(params))
    for names, fault in ((fields - described, "lacks"), (described - fields, "describes what is no field:")):
        if names:
            raise ValueError(f"the docstring of {params.__name__} {fault} {', '.join(sorted(names))} (in Attributes:)")


def _described(params: type) -> dict[str, str]:
    """Every entry of the class and of its bases; the class's own stands for one of a base."""
    entries: dict[str, str] = {}
    for each in reversed(params.__mro__):
        section = _docstring(each).partition("\nAttributes:\n")[2].split("\n\n")[0]
        entries |= {name: _joined(text) for name, text in _ENTRY.findall(textwrap.dedent(section))}
    return entries


def _docstring(params: type) -> str:
    """A class's own docstring. A dataclass without one has its signature there, which says nothing."""
    text = params.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{params.__name__}(") else inspect.cleandoc(text)


def _joined(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")
