"""Writes hyperparameters into the methods' pages, between marks, from the classes that validate them.

A page of several methods has a block of the hyperparameters that these share, and one for the others of each method.
Run ``python -m fedscale_ext.config.method_pages docs/methods/*.md`` after changing a hyperparameter.
"""

import re
import sys
from pathlib import Path

from fedscale_ext.config.meanings import check_meanings, hyperparameters, introduction
from fedscale_ext.config.methods import method_class
from fedscale_ext.config.reference import entry

# the entries of one method; its name stands in the first mark
_BLOCK = re.compile(r"(<!-- hyperparameters of (\w+): .*? -->\n).*?(<!-- end of hyperparameters -->)", re.S)
# the entries that several methods have alike; their names stand in the first mark
_SHARED = re.compile(
    r"(<!-- hyperparameters shared by (\w+(?: \w+)+): .*? -->\n).*?(<!-- end of hyperparameters -->)", re.S
)


def with_hyperparameters(page: str) -> str:
    """Return a page in which each block between marks has the hyperparameters of its methods, as Markdown.

    Args:
        page: Text of the page.

    Raises:
        UserError: A mark names no method.
        ValueError: The meaning of a hyperparameter is not written.

    """
    written: dict[str, set[str]] = {}  # by method: what shared blocks have of it

    def shared_block(match: re.Match[str]) -> str:
        head, names, end = match.groups()
        methods = names.split()
        before = set.intersection(*(written.get(method, set()) for method in methods))
        entries = {name: text for name, text in _shared(methods).items() if name not in before}
        for method in methods:
            written.setdefault(method, set()).update(entries)
        return f"{head}\n" + "\n".join(entries.values()) + f"\n\n{end}"

    def block(match: re.Match[str]) -> str:
        head, method, end = match.groups()
        lines = [text for name, text in _entries(method, method).items() if name not in written.get(method, set())]
        if about := introduction(_params(method)):
            lines = [about, "", *lines]
        return f"{head}\n" + "\n".join(lines or ["None of its own."]) + f"\n\n{end}"

    return _BLOCK.sub(block, _SHARED.sub(shared_block, page))


def _params(method: str) -> type:
    return method_class(method).Params  # type: ignore[attr-defined,no-any-return]


def _entries(method: str, prefix: str) -> dict[str, str]:
    """Return the entry of each hyperparameter of a method as Markdown, by its name; keys begin with ``prefix``."""
    params = _params(method)
    check_meanings(params)
    return {name: entry(f"{prefix}.{name}", *texts) for name, *texts in hyperparameters(method, params)}


def _shared(methods: list[str]) -> dict[str, str]:
    """Return the entries that are equal in all of the methods, by name; their keys begin with ``METHOD``."""
    first, *others = [_entries(method, "METHOD") for method in methods]
    return {name: text for name, text in first.items() if all(entries.get(name) == text for entries in others)}


def blocks(page: str) -> list[str]:
    """Return the names of the methods that have a block of their own on a page, in its order."""
    return [match[2] for match in _BLOCK.finditer(page)]


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_hyperparameters(path.read_text(encoding="utf-8")), encoding="utf-8")
