"""YAML as configurations use it, read and written: small, flat, each key once, and nothing that grows when it is read.

PyYAML's safe loader runs nothing, but takes a list that is named nine times nine times over, nests until
Python's stack ends, lets the last of two equal keys win, reads ``1:30`` as the number 90, ``1_30`` as 130 and ``0130``
as 88, and raises whatever int() or a date does.
"""

import json
import re
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

MAX_BYTES = 1 << 18
_DEEPEST = 16


class _Loader(yaml.SafeLoader):
    """SafeLoader without large or repeated structures."""

    _depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        """A node of the document; an alias may stand for a single value only."""
        event = self.peek_event()
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _refused("it is nested too deeply", event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent) and not (isinstance(node, ScalarNode) and len(node.value) < 1000):
            problem = f"the alias *{event.anchor} stands for more than one short value: write it out"
            raise _refused(problem, event.start_mark)
        return node

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """A value; what its text promised (``2024-13-45`` a date) but is not raises no longer just anything."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
            problem = f"{node.value!r:.60} is not of the kind that it looks like: quote it if it is text"
            raise _refused(problem, node.start_mark) from None

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping, whose keys are text and differ."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, ScalarNode):
                raise _refused("a key is not a single word", key.start_mark)
            if key.value in seen:
                problem = f"the key {key.value!r:.60} is there twice"
                raise _refused(problem, key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _number(loader: _Loader, node: ScalarNode) -> Any:
    """A number; what has colons or underscores is text, and so is a whole number that begins with zeros.

    Whoever writes ``1:30`` does not mean the sixties of YAML 1.1, nor its eights by ``0130``; ``1126_214611`` is the
    time stamp of a run. A key that takes a number reads such a text as a decimal one.
    """
    kind = "int" if node.tag == "tag:yaml.org,2002:int" else "float"
    if {":", "_"} & set(node.value) or re.fullmatch(r"[-+]?0\d+", node.value):
        return node.value
    return getattr(yaml.SafeLoader, f"construct_yaml_{kind}")(loader, node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _number)


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def as_yaml(value: Any) -> str:
    """A value in one line of plain signs that :func:`load_yaml` reads back; what JSON has no word for is its text."""
    text = json.dumps(value, ensure_ascii=False, default=str)  # JSON's own escapes are of UTF-16, which YAML is not
    return re.sub(r"[^ -~]", lambda sign: rf"\U{ord(sign[0]):08x}", text)


def load_yaml(text: str) -> Any:
    """Parse a YAML text; ValueError, in a few words with the line, where it is broken or refused."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has {len(text):,} characters, of which {MAX_BYTES:,} are allowed")
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error)
        raise ValueError(problem + (f" (line {mark.line + 1})" if mark else "")) from None
