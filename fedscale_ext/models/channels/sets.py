"""Sets of channels, which are joined as the operations of a network ask for it."""

from dataclasses import dataclass


class Channels:
    """A set of ``width`` channels; ``name`` is that of the first module that makes them."""

    def __init__(self, width: int, name: str = "") -> None:
        self.width, self._name = width, name
        self._fixed = False
        self._joined_to: Channels | None = None

    @property
    def _root(self) -> "Channels":
        return self._joined_to._root if self._joined_to else self

    @property
    def name(self) -> str:
        """Return the name of the joined set."""
        return self._root._name

    @property
    def fixed(self) -> bool:
        """Return whether no channel may be cut."""
        return self._root._fixed

    def fix(self, name: str = "") -> None:
        """Let no channel be cut; ``name`` replaces the set's name."""
        self._root._fixed = True
        self._root._name = name or self._root._name

    def join(self, other: "Channels") -> None:
        """Let both be one set; sets of different width cannot be, and are fixed."""
        mine, theirs = self._root, other._root
        if mine is theirs:
            return
        if mine.width != theirs.width:
            mine._fixed = theirs._fixed = True
            return
        theirs._joined_to = mine
        mine._name = theirs._name if theirs._fixed and not mine._fixed else mine._name
        mine._fixed |= theirs._fixed


@dataclass(frozen=True)
class Dim:
    """The channels along a dimension, with ``repeat`` consecutive entries each."""

    channels: Channels
    repeat: int = 1

    @property
    def length(self) -> int:
        """Return the number of entries along the dimension."""
        return self.channels.width * self.repeat


Dims = tuple[Dim | None, ...]
"""The channels along each dimension of a tensor; None where there are none."""


def fix(*dims: Dim | None) -> None:
    """Let no channel of these dimensions be cut."""
    for dim in dims:
        if dim is not None:
            dim.channels.fix()


def join(one: Dim | None, other: Dim | None) -> Dim | None:
    """Join channels that go together entry by entry; where only one side has any, they are fixed."""
    if one is not None and other is not None and one.repeat == other.repeat:
        one.channels.join(other.channels)
    elif one is not other:
        fix(one, other)
    return one or other
