"""FedRolex (Alam et al., NeurIPS 2022): HeteroFL whose submodels are windows that roll.

In a round, a client trains a window of each layer's channels, as wide as its level's rate. From round to round, windows
begin one channel further and wrap around, so that all channels are trained. Each entry becomes the mean over the
clients that trained it.

Departures from the paper and the public code:

* ``mask`` is off by default. The public code trains with HeteroFL's masked cross-entropy: its config.yml and the
  commands of its README turn it on. ``fedrolex.mask: true`` does so here.
* Every entry is a plain mean over the clients that trained it. The public code weighs BatchNorm, biases and the
  classifier by how often they were updated before.

Paper to code, section by section: docs/methods/width.md.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedscale_ext.method import About, EvaluationPlan, Population, Task, WorkItem, window
from fedscale_ext.methods.submodel.heterofl import HeteroFLAggregator, HeteroFLParams


@dataclass(frozen=True)
class FedRolexParams(HeteroFLParams):
    """Hyperparameters of FedRolex: HeteroFL's, without the mask.

    Every entry is a plain mean over the clients that held it. The public code weighs BatchNorm, biases and the
    classifier by how often they were updated before.

    Attributes:
        rates: Channel rates of the levels, falling. If all are below 1, they train a model that no client holds.
        mask: Clients train only on the logits of their own classes (HeteroFL's masked cross-entropy). The public code
            does so.
        serve: ``submodel`` tests each client on the leading channels of its level, which it affords. ``server`` tests
            it on the whole model, as in the paper.

    """

    mask: bool = False
    serve: Literal["submodel", "server"] = "submodel"

    method: ClassVar[str] = "fedrolex"


class FedRolexAggregator(HeteroFLAggregator):
    """HeteroFL whose submodels are windows that roll over the channels, so that all are trained (FedRolex)."""

    about: ClassVar[About] = About("width", 2022)
    Params: ClassVar[type] = FedRolexParams
    moves = True

    def init_state(self, population: Population, task: Task) -> None:
        """Tell who is tested on more than their devices afford."""
        super().init_state(population, task)
        whole = self.pool[self.whole].cost.forward_macs
        if self.params.serve == "server" and (beyond := int((self.capacity < whole).sum())):
            self.notice(
                f"all clients are tested on the whole model, {whole:,} MACs per sample, which {beyond} of "
                f"{task.num_clients} do not afford: fedrolex.serve is server"
            )

    def assign(self, round: int, participants: np.ndarray) -> list[WorkItem]:
        """Roll the windows: they start at channel j mod C of each group and wrap; j = 0 in the first round."""
        self._roll(round - 1)
        return super().assign(round, participants)

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client the leading window of its level, or the whole model (``serve``).

        No window is trained more than another, and the leading one stands still. The round of ``test_around_training``
        trains it, too: that test compares one network with itself.
        """
        self._roll(0)
        plan = super().evaluation_plan()
        if self.params.serve == "server":
            return EvaluationPlan([self.whole] * self.task.num_clients, plan.named)
        return plan

    def _roll(self, start: int) -> None:
        spec = self.pool[self.whole].spec
        for key, rate in zip(self.keys, self.rates, strict=True):
            if key != self.whole:
                self.pool.set_channels(key, self.whole, window(spec, rate, start))
