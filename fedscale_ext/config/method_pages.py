"""Writes hyperparameters into the methods' pages, between marks, from the classes that validate them.

Run ``python -m fedscale_ext.config.method_pages docs/methods/*.md`` after changing a hyperparameter.
"""

import dataclasses
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from fedscale_ext.config.meanings import check_meanings, introduction, meanings
from fedscale_ext.config.methods import method_class
from fedscale_ext.config.reference import entry
from fedscale_ext.util.ranges import values

# the entries of one method; its name stands in the first mark
_BLOCK = re.compile(r"(<!-- hyperparameters of (\w+): .*? -->\n).*?(<!-- end of hyperparameters -->)", re.S)


def with_hyperparameters(page: str) -> str:
    """Return a page in which each block between marks has the hyperparameters of its method, as Markdown.

    Args:
        page: Text of the page.

    Raises:
        UserError: A mark names no method.
        ValueError: The meaning of a hyperparameter is not written.

    """

    def block(match: re.Match[str]) -> str:
        head, method, end = match.groups()
        entries = "\n".join(_entries(method, method_class(method).Params))  # type: ignore[attr-defined]
        return f"{head}\n{entries}\n\n{end}"

    return _BLOCK.sub(block, page)


def _entries(method: str, params: type) -> Iterator[str]:
    """Yield lines of Markdown on the hyperparameters of a method: an introduction, if any, and an entry for each."""
    check_meanings(params)
    if about := introduction(params):
        yield from (about, "")
    hints, texts = get_type_hints(params, include_extras=True), meanings(params)
    for field in dataclasses.fields(params):
        yield entry(f"{method}.{field.name}", values(hints[field.name]), field.default, texts[field.name])


def blocks(page: str) -> list[str]:
    """Return the names of the methods whose hyperparameters a page has, in its order."""
    return [match[2] for match in _BLOCK.finditer(page)]


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(with_hyperparameters(path.read_text(encoding="utf-8")), encoding="utf-8")
