"""The one error that a user sees."""

import difflib
from collections.abc import Iterable, Sequence


class UserError(Exception):
    """Bad input in one sentence: what is wrong, where, and what to do about it.

    Every command prints the sentence on stderr and exits with code 2, without a traceback. The sentence may quote
    the content of a file; it is always one printable line.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(one_line(sentence, 2000))


class JobFailed(UserError):
    """A job under way that cannot go on, though its settings are right: in one sentence, with exit code 1."""


def one_line(text: str, max_chars: int) -> str:
    """Return ``text`` as one line of printable characters, cut after ``max_chars``."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * max_chars]).split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + "…"


def listed(names: Sequence[str], shown: int = 5) -> str:
    """Return the first ``shown`` names and the number of the others: ``"a, b, c and 3 more"``.

    A long name is cut. A name with a comma is quoted.
    """
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(_apart(one_line(name, 60)) for name in names[:shown]) + more


def _apart(name: str) -> str:
    return f"'{name}'" if "," in name and name[0] not in "'\"[" else name


def enumerated(items: Sequence[object], conjunction: str = "and") -> str:
    """Return all items, of which there must be one or more: ``"a, b and c"``."""
    *others, last = map(str, items)
    return f"{', '.join(others)} {conjunction} {last}" if others else last


def did_you_mean(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ``"; did you mean 'x'?"`` where a known word is close to ``word``, else an empty string.

    ``prefix`` stands before both words when users type them; the comparison leaves it out.
    """
    close = difflib.get_close_matches(word[:100], list(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix + close[0]!r}?" if close else ""


def meant_or_known(word: str, known: Iterable[str], shown: int = 12) -> str:
    """Return :func:`did_you_mean`, or a list of known words where none is close: ``"; there are a, b and 3 more"``."""
    names = sorted(known)
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    # spread over all of them: the first ones by name may all be of one kind
    some = names if not rest else [names[index * len(names) // shown] for index in range(shown)]
    return did_you_mean(word, names) or f"; there are {', '.join(some)}{rest}"
