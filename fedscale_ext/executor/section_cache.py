"""Sections of answers that an executor keeps, because the next unit of their clients begins from them."""

from collections.abc import Mapping

MOST_BYTES = 256 << 20


class SectionCache:
    """Sections by label. Those that were not used for longest make room for others.

    Args:
        most_bytes: Of all sections together.

    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._sections: dict[str, bytes] = {}  # the one that was used last stands last
        self._num_bytes = 0

    def put(self, label: str, section: bytes) -> None:
        """Keep a section, unless it alone is too large."""
        self.drop(label)
        if len(section) > self._most_bytes:
            return
        while self._num_bytes + len(section) > self._most_bytes:
            self.drop(next(iter(self._sections)))
        self._sections[label] = section
        self._num_bytes += len(section)

    def drop(self, label: str) -> None:
        """Forget a section, if it is here."""
        self._num_bytes -= len(self._sections.pop(label, b""))

    def get(self, labels: Mapping[str, str]) -> dict[str, bytes] | None:
        """Return the sections of labels, by the names for which they stand; None if one of them is not here."""
        if not all(label in self._sections for label in labels.values()):
            return None
        for label in labels.values():
            self._sections[label] = self._sections.pop(label)
        return {name: self._sections[label] for name, label in labels.items()}
