"""FML, federated mutual learning (Shen et al. 2020): a small shared "meme" model and a client's own teach each other.

A client receives the meme model, trains it and its own model on the same batches, and sends the meme model, which the
server averages by samples. Each model minimises cross-entropy and the KL divergence from the other one's outputs (deep
mutual learning): alpha CE + (1 - alpha) KL(meme || own) for the own model, and beta CE + (1 - beta) KL(own || meme) for
the meme model.

Departures from the paper:

* Both models step at once from one batch's outputs, by the job's optimiser. ``clip_norm`` is the norm of both gradients
  together.
* The training loss that a job shows is the sum of both models' losses.
* Clients that do not take part keep their own models as they are.

Paper to code, section by section: docs/methods/exchange.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedscale_ext.method import About, Bench, ClientConfig, Fraction
from fedscale_ext.methods.distillation.losses import divergence, hard_cross_entropy
from fedscale_ext.methods.exchange.mutual import MutualAggregator, MutualClient, MutualParams


class FMLClient(MutualClient):
    """Client whose two models learn labels and each other's outputs."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._alpha, self._beta = (float(conf.objective.get(name, 1.0)) for name in ("alpha", "beta"))

    def pair_losses(self, own: Tensor, shared: Tensor, labels: Tensor) -> Tensor:
        """The sum of both models' losses of each sample, [...]; neither learns through its teacher."""
        mine = _learns(own, shared.detach(), labels, self._alpha)
        return mine + _learns(shared, own.detach(), labels, self._beta)


def _learns(student: Tensor, teacher: Tensor, labels: Tensor, share: float) -> Tensor:
    """Share CE + (1 - share) KL(teacher || student) of each sample, [...]."""
    return share * hard_cross_entropy(student, labels) + (1.0 - share) * divergence(student, teacher)


@dataclass(frozen=True)
class FMLParams(MutualParams):
    """Hyperparameters of FML.

    The job's ``model`` is the meme model, which clients share.

    Attributes:
        alpha: Weight of labels against the meme model's outputs, in the loss of a client's own model.
        beta: Weight of labels against the own model's outputs, in the loss of the meme model.

    """

    alpha: Fraction = 0.5
    beta: Fraction = 0.5

    method: ClassVar[str] = "fml"


class FMLAggregator(MutualAggregator):
    """Clients keep models of any architecture and share a small one that learns beside them (FML)."""

    about: ClassVar[About] = About("exchange", 2020)
    Params: ClassVar[type] = FMLParams
    Client: ClassVar[type] = FMLClient

    def objective(self) -> dict[str, Any]:
        """The weights of labels."""
        return {"alpha": self.params.alpha, "beta": self.params.beta}
