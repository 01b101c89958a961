"""FedMRL (Yi et al., NeurIPS 2024): a shared small model and a client's own one read one nested representation.

Both models see the same batch. Their features, the inputs of their last layers, stand side by side, and a projector of
the client's own fuses them into one representation, as wide as the own model's (adaptive representation fusion). The
shared model's head reads its first columns, as many as that model has features. The own model's head reads all of it
(multi-granular representation learning). Both losses train everything: CE(own) + ``weight`` CE(shared).

The shared model travels, and the server averages it by samples. The own model and the projector stay with the client.
A client is tested on the own model's head, with the newest shared model.

Departures from the paper and the public code:

* The paper's equations were not checked: the projector, both losses and their equal weights are those of the authors'
  public code.
* The projector is the sum of two linear maps, one of each model's features, which is one map of both side by side. Its
  first values are drawn by the width of each part.
* The public code clips the gradients of each network at norm 50. Here ``clip_norm`` is the norm of all together.
* The training loss that a job shows is the sum of both losses.
* Each last layer also runs on its own network's features, and nothing reads that. The MACs count it.
* The shared model is not tested alone: its head is trained for fused representations.
* Clients that do not take part keep their own models and projectors as they are.

Paper to code, section by section: docs/methods/exchange.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedscale_ext.method import (
    About,
    Bench,
    ClientConfig,
    CountOrZero,
    EvaluationPlan,
    ModelSpec,
    NotNegative,
)
from fedscale_ext.methods.distillation.losses import hard_cross_entropy
from fedscale_ext.methods.exchange.mutual import MutualAggregator, MutualClient, MutualParams
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.families.network_pair import FUSED


class FedMRLClient(MutualClient):
    """Client whose two heads learn labels from one representation."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 1.0))

    def pair_losses(self, own: Tensor, shared: Tensor, labels: Tensor) -> Tensor:
        """The weighted sum of both heads' cross-entropy of each sample, [...]."""
        return hard_cross_entropy(own, labels) + self._weight * hard_cross_entropy(shared, labels)


@dataclass(frozen=True)
class FedMRLParams(MutualParams):
    """Hyperparameters of FedMRL.

    The job's ``model`` is the small model, which clients share. It must have no more features than each type's model.

    Attributes:
        width: Features of the shared model, which gets a layer of that width before its last one. With 0, it stays as
            it is.
        weight: Weight of the shared head's loss. The own head's loss has weight 1.

    """

    width: CountOrZero = 0
    weight: NotNegative = 1.0

    method: ClassVar[str] = "fedmrl"


class FedMRLAggregator(MutualAggregator):
    """Clients keep models of any architecture, whose features they fuse with a shared small model's (FedMRL)."""

    about: ClassVar[About] = About("exchange", 2024)
    Params: ClassVar[type] = FedMRLParams
    Client: ClassVar[type] = FedMRLClient
    joined: ClassVar[str] = FUSED

    def initial_spec(self) -> ModelSpec:
        """Spec of the shared model."""
        spec = super().initial_spec()
        return headed(spec, self.params.width) if self.params.width else spec

    def objective(self) -> dict[str, Any]:
        """The weight of the shared head's loss."""
        return {"weight": self.params.weight}

    def evaluation_plan(self) -> EvaluationPlan:
        """Serve each client its own model, which needs the shared one."""
        return EvaluationPlan(self.personal_keys())

    def served_bytes(self) -> Sequence[float]:
        """Bytes of what a client is tested with: its own model, its projector and the shared model."""
        return [float(self.pool[self.keys[index]].cost.bytes) for index in self.type_of.tolist()]
