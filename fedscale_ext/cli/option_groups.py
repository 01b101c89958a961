"""Options of a command in groups: a frozen dataclass a group, an option a field."""

import dataclasses
import inspect
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the fields of its dataclass parameters as options of their own.

    A field is annotated as an option is: ``Annotated[int, typer.Option(help=...)]``. The help lists the options of a
    group under the first line of the dataclass's docstring. The command gets the dataclasses, built of the options.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            groups[parameter.name] = kind
            parameters += _options(kind)
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def flat(**values: Any) -> None:
        built = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**values, **built)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _options(group: type) -> list[inspect.Parameter]:
    """A parameter for each field, in the help's panel of the group."""
    hints = get_type_hints(group, include_extras=True)
    panel = inspect.cleandoc(group.__doc__ or "").partition("\n")[0].rstrip(".")
    parameters = []
    for field in dataclasses.fields(group):
        kind, option = get_args(hints[field.name])
        option = copy(option)
        option.rich_help_panel = panel
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        parameters.append(
            inspect.Parameter(
                field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
            )
        )
    return parameters
