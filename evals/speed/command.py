"""How the commands of this folder refuse their arguments, and how they end."""

import argparse
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console

from fedscale_ext.core.errors import UserError


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError."""
        raise UserError(f"{message}; see {self.prog} --help")


def exit_code(work: Callable[[], None], stopped: str) -> int:
    """Do the ``work`` of a command and return its exit code; bad input and Ctrl-C are one sentence each.

    Args:
        work: What the command does.
        stopped: What to say after Ctrl-C.

    """
    try:
        work()
    except UserError as error:
        code, sentence = 2, str(error)
    except KeyboardInterrupt:
        code, sentence = 130, stopped
    else:
        return 0
    Console(stderr=True).print(sentence, markup=False, highlight=False, soft_wrap=True)
    return code
