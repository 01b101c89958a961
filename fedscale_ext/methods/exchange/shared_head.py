"""Methods whose clients keep the body of their models and share the last layer: LG-FedAvg and FedGH."""

from typing import Any, ClassVar

from torch import nn

from fedscale_ext.method import ClientConfig, Population, State, Task, UserError
from fedscale_ext.methods.exchange.client import TensorExchangeClient
from fedscale_ext.methods.exchange.tensor_exchange import SharedFeaturesAggregator
from fedscale_ext.methods.personal.personal_models import load_tensors
from fedscale_ext.models.layers.final_layer import FinalLayer


class SharedHeadClient(TensorExchangeClient):
    """Client that begins each round, and is tested, with the body that it keeps and the head that the server sent."""

    def load_personal_model(self, model: nn.Module, conf: ClientConfig) -> None:
        """Load the client's body and the server's head into ``model``; without a message, its own head."""
        super().load_personal_model(model, conf)
        load_tensors(model, {f"{self.layer}.{name}": tensor for name, tensor in self.message.items()})


class SharedHeadAggregator(SharedFeaturesAggregator):
    """Base of these methods. ``head``: the last layer's tensors, ``weight`` and ``bias``, which all types share."""

    head: State
    passes_after: ClassVar[int] = 0

    def init_state(self, population: Population, task: Task) -> None:
        """Create models that begin with one head."""
        super().init_state(population, task)
        if len({self.final_layer(key).biased for key in self.keys}) > 1:
            raise UserError(
                f"method {self.config.job.method} gives all types one last layer, and only some of them have a bias "
                "there; choose other types"
            )
        self.head = head_of(self.pool[self.keys[0]].state, self.final_layer(self.keys[0]))
        for key in self.keys[1:]:
            tensors = self.final_layer(key).tensors
            head = {tensors[name]: self.head[name] for name in tensors}
            self.pool.update(key, {**self.pool[key].state, **head})

    def message(self) -> State:
        """The head."""
        return self.head

    def state(self) -> tuple[State, dict[str, Any]]:
        """Return the head."""
        return dict(self.head), {}

    def load_state(self, tensors: State, data: dict[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.head = dict(tensors)
        self.publish()


def head_of(state: State, layer: FinalLayer) -> State:
    """The tensors of a network's last layer by their names in the layer, from the network's state."""
    return {name: state[full].detach().clone() for name, full in layer.tensors.items()}
