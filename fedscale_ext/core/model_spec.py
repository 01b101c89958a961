"""What a model is, as data: nothing executable crosses the wire and every process can build every model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Scalar = int | float | str | bool | None
Frozen = Scalar | tuple["Frozen", ...]


def _freeze(value: Any) -> Frozen:
    return tuple(_freeze(item) for item in value) if isinstance(value, list | tuple) else value


def _thaw(value: Frozen) -> Any:
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class ModelSpec:
    """Frozen, hashable description of an architecture.

    ``family`` names the module that builds it; ``fields`` are (name, value) pairs, sorted by
    name, of numbers, strings and nested tuples of them. Use :meth:`make` and ``spec["name"]``.
    """

    family: str
    fields: tuple[tuple[str, Frozen], ...]

    @classmethod
    def make(cls, family: str, /, **fields: Any) -> "ModelSpec":
        """A spec of a family from named values; lists become tuples."""
        return cls(family, tuple(sorted((name, _freeze(value)) for name, value in fields.items())))

    def __getitem__(self, name: str) -> Any:
        for field, value in self.fields:
            if field == name:
                return value
        raise KeyError(f"{self.family} spec has no field {name!r}")

    def replace(self, **fields: Any) -> "ModelSpec":
        """A copy with some fields set anew."""
        return ModelSpec.make(self.family, **{**dict(self.fields), **fields})

    def to_json(self) -> dict[str, Any]:
        """JSON values from which :meth:`from_json` makes an equal spec."""
        return {"family": self.family, "fields": {name: _thaw(value) for name, value in self.fields}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ModelSpec":
        """Inverse of :meth:`to_json`."""
        return cls.make(str(data["family"]), **dict(data["fields"]))


@dataclass(frozen=True)
class Cost:
    """What a model costs: MACs per sample, number of trainable parameters, bytes of the whole state."""

    forward_macs: int
    training_macs: int
    parameters: int
    bytes: int


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor in a layout.

    ``group`` names a set of channels that belongs together (all axes of one group have one
    length and are indexed by one map); ``role`` is "out" where the tensor produces these channels
    (rows, bias, BatchNorm vectors: copied when the group is widened) and "in" where it consumes
    them (columns: copied and split). ``None`` in place of an Axis is a fixed axis (kernel size).
    ``repeat`` consecutive entries belong to each channel (a linear layer behind a flattened
    H x W map has repeat H * W); the axis is ``repeat`` times as long as the group.
    """

    group: str
    role: str
    repeat: int = 1


Layout = dict[str, tuple[Axis | None, ...]]
