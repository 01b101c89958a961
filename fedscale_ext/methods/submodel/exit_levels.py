"""What methods share whose levels are parts of a network with several exits: the clients' joint loss, the levels.

A client's model holds the exits that its device affords. Its loss is the sum of their cross-entropies (HypeMeFed,
SenSys 2024, section 4.2), unless a method combines them otherwise.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from torch import Tensor
from torch.nn import functional

from fedscale_ext.method import ModelSpec, MultiModelClient, Population, Task, UserError
from fedscale_ext.methods.submodel.capacity_levels import Level, LevelsAggregator
from fedscale_ext.models.multi_exit.family import num_exits, prefix


def prefixes(spec: ModelSpec, heads: Literal["all", "last"]) -> list[Level]:
    """Levels that are the first blocks of a network up to each of its exits, deepest first.

    Args:
        spec: The network.
        heads: Which of its exits a level has: ``all``, or only its ``last``.

    Returns:
        The levels.

    """
    return [
        Level(f"exit{depth}", prefix(spec, depth).replace(heads=heads), {}, f"up to exit {depth}")
        for depth in range(num_exits(spec), 0, -1)
    ]


class MultiExitClient(MultiModelClient):
    """Client that minimises the joint loss of all exits, alone and in cohorts alike (HypeMeFed, section 4.2)."""

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Joint loss of each sample, [...].

        Args:
            output: Logits [..., exits, classes]; in evaluation [..., classes].
            labels: Classes int64 [...].

        Returns:
            Losses [...].

        """
        if output.dim() == labels.dim() + 1:
            return super().losses(output, labels)
        targets = labels[..., None].expand(output.shape[:-1])
        each = functional.cross_entropy(output.flatten(0, -2), targets.flatten(), reduction="none")
        return self.combined(output, each.view(targets.shape))

    def combined(self, output: Tensor, each: Tensor) -> Tensor:
        """Loss of each sample [...], from logits [..., exits, classes] and the exits' cross-entropies [..., exits]."""
        return each.sum(-1)


class ExitLevelsAggregator(LevelsAggregator):
    """Base of methods whose levels are parts of a network with several exits.

    Their ``Params`` extend :class:`LevelsParams`.
    """

    trains_exits: ClassVar[bool] = True

    def whole_spec(self) -> ModelSpec:
        """Spec of the network with all its exits; its state holds that of every level."""
        spec = self.initial_spec()
        if spec.family != "multi_exit":
            raise UserError(
                f"method {self.config.job.method} needs a network with several exits, and model {self.args.model} has "
                "one; choose a model whose name begins with multi_exit"
            )
        return prefix(spec, num_exits(spec)).replace(heads="all")

    def init_state(self, population: Population, task: Task) -> None:
        """Create the network and its levels, choose the level of each client, and report levels without clients."""
        super().init_state(population, task)
        self._check_clients(np.bincount(self.level_of, minlength=len(self.levels)).tolist())

    def _check_clients(self, counts: Sequence[int]) -> None:
        """Raise UserError where no client affords the whole network, unless sizes or shares say so.

        A notice names other levels without clients.
        """
        p = self.params
        intended = p.levels == "groups" or (p.shares is not None and not p.shares[-1])
        if not (self.affordable[:, 0].any() or intended):
            needs = self.pool[self.whole].cost.forward_macs
            raise UserError(
                f"no client is on level {self.keys[0]}, so that the whole network would not be trained: it takes "
                f"{needs:,} MACs, the strongest client affords {self.capacity.max():,.0f}; give a smaller model, or "
                f"sizes of levels with {p.method}.groups"
            )
        for level, clients in zip(self.levels, counts, strict=True):
            if not clients:
                self.notice(f"no client is on level {level.key}: what no other level trains keeps its initial values")
