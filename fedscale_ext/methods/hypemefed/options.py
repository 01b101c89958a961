"""What hypernetworks are like: the paper's values (section 5.1), ``hidden`` the public code's."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Options:
    """Of a model's hypernetworks; a job's keys, of which :class:`~.params.HypeMeFedParams` tells the meaning."""

    k: int | Literal["all"] = 100
    hidden: int = 512
    epochs: int = 25
    lr: float = 5e-4
    variant: Literal["low_rank", "naive"] = "low_rank"
    loss: Literal["weight", "factors"] = "weight"
    optimizer: Literal["reset", "kept"] = "reset"
    generate: Literal["conv", "+bn", "+fc", "+bn+fc"] = "conv"
    precision: Literal["float32", "bfloat16"] = "float32"

    @property
    def components(self) -> int | None:
        """How many singular components are kept; None for all."""
        return None if self.k == "all" else self.k
