"""The configuration's setup_commands: plain commands are run here, without a shell."""

import re
import shlex
import shutil
from collections.abc import Sequence

from fedscale_ext.core.errors import UserError

_SHELL_WORDS = {
    *(".", "source", "export", "cd", "conda", "alias", "set", "unset", "ulimit", "eval", "exec", "umask", "trap"),
    *("if", "for", "while", "case", "function", "!", "shopt", "declare", "local", "read"),
}


def plain_commands(commands: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Argument lists of the commands that need no shell, and the texts of those that do."""
    plain, shell = [], []
    for command in commands:
        argv = _plain(command)
        if argv is None:
            shell.append(command)
        elif argv:
            plain.append(argv)
    return plain, shell


def check_program(argv: Sequence[str]) -> None:
    """Check that the program of a command is installed on this machine; UserError otherwise."""
    if shutil.which(argv[0]) is None:
        raise UserError(
            f"setup command {shlex.join(argv)!r}: the program {argv[0]!r} is not found; install or remove it"
        )


def _plain(command: str) -> list[str] | None:
    """The command's words, or None if only a shell can read it."""
    if re.search(r"[$`*?~<>|&;(){}\n]", command):
        return None
    try:
        argv = shlex.split(command)
    except ValueError:  # a quote that is not closed
        return None
    if argv and (argv[0] in _SHELL_WORDS or re.match(r"[A-Za-z_]\w*=", argv[0])):
        return None
    return argv
