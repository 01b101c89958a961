"""DS-FL (Itahara et al. 2020, Algorithm 1): clients share soft labels of public samples, which need no labels.

In a round, clients train on their own samples and report logits of ``samples`` public samples. The server sharpens
their mean probabilities (entropy reduction aggregation). Clients and the server's model learn the result.

Departures from the paper:

* Clients learn the soft labels at the beginning of the next round, so that a client meets the server once. Clients that
  do not take part learn nothing.
* Clients have models of any architecture.
* They upload logits, which are as large as soft labels.
* Clients step with the job's optimiser, the server's model by SGD.

The only public code (SCARLET's, a third party's) tests with temperature 0.5. The paper's 0.1 is the default.

Paper to code, section by section: docs/methods/distillation.md.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedscale_ext.method import About, Count, Positive
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.consensus import entropy_reduced
from fedscale_ext.methods.distillation.fitting import Fit
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator, Phase
from fedscale_ext.methods.distillation.losses import soft_cross_entropy
from fedscale_ext.methods.distillation.public_models import SERVER


@dataclass(frozen=True)
class DSFLParams(DeviceTypesParams):
    """Hyperparameters of DS-FL.

    The job's ``model`` is the server's.

    Attributes:
        samples: Public samples that are labelled in a round (the paper's o_r), or all if there are fewer.
        temperature: Temperature T of the softmax of the mean probabilities, which gives the labels.
        epochs: Epochs that clients and the server's model learn the labelled samples for.
        batch_size: Samples of a batch of this learning, at clients and the server.
        lr: Learning rate of the server's model.

    """

    samples: Count = 1000
    temperature: Positive = 0.1
    epochs: Count = 5
    batch_size: Count = 100
    lr: Positive = 0.1

    method: ClassVar[str] = "dsfl"


class DSFLAggregator(LogitsExchangeAggregator):
    """Clients keep models of any architecture and share soft labels of public samples (DS-FL)."""

    about: ClassVar[About] = About("distillation", 2020, "public samples")
    Params: ClassVar[type] = DSFLParams
    has_server_model: ClassVar[bool] = True

    def phases(self, first: bool) -> list[Phase]:
        """Step 6, Distill: learn the soft labels of the last round."""
        p = self.params
        return [{"loss": "probabilities", "epochs": p.epochs, "batch_size": p.batch_size, "told": True}]

    def answer_limit(self) -> int:
        """Return the size of o_r."""
        samples: int = self.params.samples
        return samples

    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """Step 4, ERA, and step 6 for the server's model: both learn the sharpened mean probabilities."""
        p = self.params
        target = entropy_reduced(logits, p.temperature)
        how = Fit(lr=p.lr, batch_size=p.batch_size, epochs=p.epochs)
        x, state = self.public.x[rows], self.pool[SERVER].state
        self.train_server(round, state, x, lambda output, at: soft_cross_entropy(output, target[at]), how)
        return target
