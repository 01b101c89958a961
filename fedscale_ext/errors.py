"""The one error that a user sees."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input in one sentence: what is wrong, where, and what to do about it.

    Every command turns it into that sentence on stderr and exit code 2, without a traceback.
    """


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` when a known word is close to ``word``, else an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
