"""``fedscale methods``: what can train, and with which hyperparameters."""

import dataclasses
import inspect
import sys
from typing import Any


def methods() -> None:
    """List the methods that are installed, with their hyperparameters and defaults.

    A method is chosen by `method: NAME` in a configuration; NAME.KEY sets its hyperparameter.

    Example: fedscale driver start quickstart --set method=fedtrans --set fedtrans.beta=0.01
    """
    from fedscale_ext.cli.tables import console, print_table
    from fedscale_ext.methods import method_class, method_names

    rows, details = [], []
    for name in method_names():
        try:
            method: Any = method_class(name)
        except (ImportError, AttributeError) as error:  # a broken package must not hide the other methods
            print(f"note: method {name} cannot be loaded: {error}", file=sys.stderr)
            continue
        rows.append([name, (inspect.getdoc(method) or "").split("\n")[0]])
        details += [[f"{name}.{key}", value] for key, value in _params(method.Params)]
    out = console()
    print_table(out, ["method", "what it is"], rows)
    if details:
        out.print()
        print_table(out, ["hyperparameter", "default"], details)


def _params(params: type) -> list[tuple[str, str]]:
    """Name and default of each field of a method's dataclass of hyperparameters."""
    result = []
    for field in dataclasses.fields(params):
        if field.default is not dataclasses.MISSING:
            result.append((field.name, repr(field.default)))
        elif field.default_factory is not dataclasses.MISSING:
            result.append((field.name, repr(field.default_factory())))
        else:
            result.append((field.name, "required"))
    return result
