"""What hypernetworks are like: the paper's values (section 5.1), ``hidden`` the public code's."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedscale_ext.util.ranges import Count, Positive, Range


@dataclass(frozen=True)
class Options:
    """Of a model's hypernetworks; a job's keys, of which :class:`~.params.HypeMeFedParams` tells the meaning."""

    k: Count | Literal["all"] = 100
    hidden: Annotated[int, Range(1, 100_000)] = 512  # more would fill any memory
    epochs: Annotated[int, Range(1, 1_000_000)] = 25  # more would never end
    lr: Positive = 5e-4
    variant: Literal["low_rank", "naive"] = "low_rank"
    loss: Literal["weight", "factors"] = "weight"
    optimizer: Literal["reset", "kept"] = "reset"
    generate: Literal["conv", "+bn", "+fc", "+bn+fc"] = "conv"
    precision: Literal["float32", "bfloat16"] = "float32"

    @property
    def components(self) -> int | None:
        """How many singular components are kept; None for all."""
        return None if self.k == "all" else self.k
