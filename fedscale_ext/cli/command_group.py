"""A group of commands that answers an unknown command in one sentence."""

from typing import Any

from typer.core import TyperGroup

from fedscale_ext.core.errors import UserError, did_you_mean, one_line


class CommandGroup(TyperGroup):
    """A group that names the closest command, or the help that lists all of them."""

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
