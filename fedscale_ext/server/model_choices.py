"""Which models or levels a method chooses from for its clients, in words."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.model_spec import Cost


@dataclass(frozen=True)
class ModelChoice:
    """A model or level that clients may have; ``detail`` says more of it, such as its rate of channels."""

    name: str
    cost: Cost
    detail: str = ""

    def described(self) -> str:
        """Name, parameters and MACs per sample."""
        size = f"{self.cost.parameters:,} parameters, {self.cost.forward_macs:,} MACs per sample"
        return f"{self.name} ({f'{self.detail}, ' if self.detail else ''}{size})"


def assignment_sentence(choices: Sequence[ModelChoice], indices: np.ndarray) -> str:
    """``20 of 60 clients level b (...), 40 level a (...)``, without choices that no client has.

    ``indices`` int64 [clients]: the place of each client's model among ``choices``.
    """
    counts = np.bincount(indices, minlength=len(choices)).tolist()
    chosen = [(count, choice) for count, choice in zip(counts, choices, strict=True) if count]
    (first, choice), *others = chosen
    parts = [f"{first} of {len(indices)} clients {choice.described()}"]
    return ", ".join(parts + [f"{count} {other.described()}" for count, other in others])
