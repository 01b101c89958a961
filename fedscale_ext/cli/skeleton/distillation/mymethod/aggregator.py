"""The server's side of MyMethod: clients agree on soft labels of public samples, as a start.

Say here which paper the method follows, and by each step its section and equation.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedscale_ext.method import Count, CountOrZero, Positive
from fedscale_ext.methods.device_types import DeviceTypesParams
from fedscale_ext.methods.distillation.logits_exchange import LogitsExchangeAggregator, Phase


@dataclass(frozen=True)
class MyMethodParams(DeviceTypesParams):
    """Hyperparameters of MyMethod: a configuration sets them as ``NAME.temperature``.

    Attributes:
        temperature: Temperature T of the consensus. Below 1, it is surer of its classes than the clients' mean.
        epochs: Epochs in which a client learns the consensus. With 0, it never does.
        batch_size: Public samples of a batch of this learning.

    """

    temperature: Positive = 0.5
    epochs: CountOrZero = 1
    batch_size: Count = 20

    method: ClassVar[str] = "mymethod"


class MyMethodAggregator(LogitsExchangeAggregator):
    """Clients keep models of any architecture and agree on soft labels (this line is in `fedscale methods`).

    The base keeps the models, sends the public samples, receives the clients' logits of them and counts the bytes.
    Clients are those of ``fedscale_ext/methods/distillation/client.py``. Override ``answer_rows`` for fewer samples.
    """

    Params: ClassVar[type] = MyMethodParams

    def phases(self, first: bool) -> list[Phase]:
        """What a client does with public samples before it trains on its own: it learns the consensus (``told``)."""
        p = self.params
        learn = {"loss": "probabilities", "epochs": p.epochs, "batch_size": p.batch_size, "told": True}
        return [learn] if p.epochs else []

    def next_target(self, round: int, rows: Tensor, logits: Tensor) -> Tensor:
        """What clients learn in the next round, [n, classes]."""
        return consensus(logits, self.params.temperature)


def consensus(logits: Tensor, temperature: float) -> Tensor:
    """Probabilities in proportion to m^(1/T), for the mean m of the clients' probabilities.

    Args:
        logits: Each client's logits of the public samples, [clients, n, classes].
        temperature: The temperature T.

    Returns:
        The probabilities, [n, classes].

    """
    mean = logits.double().softmax(-1).mean(0)
    return (mean.log() / temperature).softmax(-1).to(logits.dtype)
