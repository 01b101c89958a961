"""Which stage of FedorAS a round belongs to (section 3): supernet training, the search, fine-tuning tier after tier,
and, where asked for, training of the same models from random weights.

The search is a round of its own, in which no client trains.
"""

from dataclasses import dataclass
from typing import Literal

Name = Literal["supernet", "search", "finetune", "twin"]


@dataclass(frozen=True)
class Stage:
    """Round ``step`` (from 1) of ``steps`` of a stage; ``tier`` counts from 0, in stages that have one."""

    name: Name
    step: int
    steps: int
    tier: int = 0


@dataclass(frozen=True)
class Plan:
    """Rounds of each stage; those of ``finetune`` and ``twin`` are for each of ``tiers``."""

    supernet: int
    finetune: int
    twin: int
    tiers: int

    @property
    def search(self) -> int:
        """Number of the round of the search."""
        return self.supernet + 1

    @property
    def rounds(self) -> int:
        """Number of rounds of all stages."""
        return self.search + self.tiers * (self.finetune + self.twin)

    def twins_until(self, round: int) -> int:
        """Number of tiers whose twin some of the first rounds train."""
        past = round - self.search - self.tiers * self.finetune
        return min(self.tiers, -(-max(past, 0) // self.twin)) if self.twin else 0

    def at(self, round: int) -> Stage:
        """The stage of a round; rounds count from 1."""
        if round <= self.supernet:
            return Stage("supernet", round, self.supernet)
        if round == self.search:
            return Stage("search", 1, 1)
        past = round - self.search - 1
        if past < self.tiers * self.finetune:
            return Stage("finetune", past % self.finetune + 1, self.finetune, past // self.finetune)
        past -= self.tiers * self.finetune
        if past < self.tiers * self.twin:
            return Stage("twin", past % self.twin + 1, self.twin, past // self.twin)
        raise ValueError(f"round {round} is after the last stage, which ends with round {self.rounds}")
