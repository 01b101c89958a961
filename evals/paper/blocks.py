"""Parts of pages that a script writes, between the lines that say so; the rest of such a page is written by hand."""

import re
from collections.abc import Sequence

_BLOCK = "<!-- {name}: written by {command} -->\n{body}\n<!-- end of {name} -->"


def with_block(text: str, name: str, command: str, lines: Sequence[str]) -> str:
    """Return the text with these lines in the place of those of the block ``name``.

    Raises:
        ValueError: If the text has no such block.

    """
    begin, end = (re.escape(part) for part in _BLOCK.format(name=name, command=command, body="\n").split("\n\n\n"))
    pattern = re.compile(f"{begin}\n.*?{end}", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"there is no block {name!r} to write")
    block = _BLOCK.format(name=name, command=command, body="\n" + "\n".join(lines) + "\n")
    return pattern.sub(lambda _: block, text, count=1)
