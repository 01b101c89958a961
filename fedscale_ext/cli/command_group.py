"""A group of commands: an unknown command is answered in one sentence, and help shows values in one style."""

from collections.abc import Iterable
from typing import Any

from typer.core import TyperArgument, TyperGroup, TyperOption

from fedscale_ext.core.errors import UserError, did_you_mean, one_line

_VALUES = {"<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<float range>": "NUMBER", "<path>": "PATH",
           "<file>": "FILE", "<str>": "TEXT", "<bool>": "", "<list[str]>": "TEXT", "<list[path]>": "PATH"}  # fmt: skip
"""Typer's word for the type of an option -> the word in help. Flags take no value."""


class CommandGroup(TyperGroup):
    """A group that names the closest command, or the help that lists all of them.

    In the help of its commands a flag has no type, and an option's value is a word in capitals.
    """

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, None where there is none."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _set_values((*command.params, command.get_help_option(ctx)), ctx)
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the group's own options."""
        params = super().get_params(ctx)
        _set_values(params, ctx)
        return params

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that ``args`` begins with.

        Raises:
            UserError: The group has no such command.

        """
        known = [name for name in self.list_commands(ctx) if not getattr(self.get_command(ctx, name), "hidden", False)]
        if args and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:  # completion asks leniently
            near = did_you_mean(args[0], known) or f"; '{ctx.command_path} --help' lists the commands"
            raise UserError(f"{ctx.command_path!r} has no command {one_line(args[0], 60)!r}{near}")
        return super().resolve_command(ctx, args)


def _set_values(params: Iterable[Any], ctx: Any) -> None:
    """Give options without a ``metavar`` the word for their type, and name arguments in capitals."""
    for param in params:
        if isinstance(param, TyperOption) and param.metavar is None:
            shown = param.display_type(ctx)
            param.metavar = _VALUES.get(shown, shown.strip("<>"))
        elif isinstance(param, TyperArgument):
            param.display_type_rich = lambda ctx: ""  # type: ignore[method-assign]  # its name tells what it is
            if param.metavar is None and param.nargs == 1:
                param.metavar = str(param.name).upper()
