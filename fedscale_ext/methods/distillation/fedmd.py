"""FedMD (Li and Wang 2019, Algorithm 1): clients with models of any architecture agree on logits of public samples.

A client begins with transfer learning: it trains on the public samples, then on its own. Then, in each round, all
participants report their logits of ``samples`` public samples, and the mean is the consensus. Each client digests it
(towards the mean absolute error of logits, as in the public code) and revisits its own samples.

Departures from the paper and the public code:

* Digest and revisit come at the beginning of the next round, so that a client meets the server once. No client digests
  the consensus of the last round.
* Transfer learning lasts a number of epochs. The code stops early by test samples. Without labels of public samples
  there is none.
* Clients that do not take part neither report nor digest anything.
* Both losses step with the job's optimiser (the code's: Adam 1e-3).

Paper to code, section by section: docs/methods/distillation.md.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedscale_ext.method import About, Count, CountOrZero, Population, Task
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.consensus import mean_logits
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator, Phase


@dataclass(frozen=True)
class FedMDParams(DeviceTypesParams):
    """Hyperparameters of FedMD.

    The job's ``local_epochs`` says how long a client revisits its own samples.

    Attributes:
        samples: Public samples on which the clients agree in a round. All are used, if there are fewer.
        digest_epochs: Epochs in which a client learns the consensus. With 0, it never does.
        digest_batch: Public samples of a batch of the digest.
        pretrain_epochs: Epochs on the public samples' labels in a client's first round. There are none if
            their classes are not the clients'.
        private_epochs: Epochs on a client's own samples in its first round. With 0, that round trains as any other.

    """

    samples: Count = 5000
    digest_epochs: CountOrZero = 1
    digest_batch: Count = 256
    pretrain_epochs: CountOrZero = 20
    private_epochs: CountOrZero = 25

    method: ClassVar[str] = "fedmd"


class FedMDAggregator(LogitsExchangeAggregator):
    """Clients keep models of any architecture and agree on logits of public samples (FedMD)."""

    about: ClassVar[About] = About("distillation", 2019, "public samples")
    Params: ClassVar[type] = FedMDParams

    def init_state(self, population: Population, task: Task) -> None:
        """Create the models and load the public data."""
        super().init_state(population, task)
        if self.public.labels is None and self.params.pretrain_epochs:
            self.notice("clients do not train on the public samples, whose classes are others")

    def phases(self, first: bool) -> list[Phase]:
        """Transfer learning at first, then the digest of the consensus (Algorithm 1)."""
        p = self.params
        pretrain = {"loss": "labels", "epochs": p.pretrain_epochs, "batch_size": self.args.batch_size, "told": False}
        digest = {"loss": "mae", "epochs": p.digest_epochs, "batch_size": p.digest_batch, "told": True}
        phases = [pretrain, digest] if first and self.public.labels is not None else [digest]
        return [phase for phase in phases if phase["epochs"]]

    def overrides(self, first: bool) -> dict[str, Any]:
        """Train for ``private_epochs`` in a client's first round."""
        return {"local_epochs": self.params.private_epochs} if first and self.params.private_epochs else {}

    def answer_limit(self) -> int:
        """Return the size of a round's subset of the public samples."""
        samples: int = self.params.samples
        return samples

    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """The consensus: the mean of the clients' logits (Algorithm 1, Aggregate)."""
        return mean_logits(logits)
