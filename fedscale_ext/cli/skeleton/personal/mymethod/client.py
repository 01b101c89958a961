"""The clients' side of MyMethod: each keeps the last layers of its network."""

from torch import nn

from fedscale_ext.method import ClientConfig, State
from fedscale_ext.methods.personal.personal_models import PersonalModelClient, copied


class MyMethodClient(PersonalModelClient):
    """Begins with the server's body and the layers that it keeps, alone and in a cohort.

    Override ``losses`` for another loss.
    """

    def next_client_state(self, model: nn.Module, conf: ClientConfig) -> State:
        """Return the client's trained layers; the server stores them for its next round."""
        state = model.state_dict()
        names = conf.objective.get("personal", conf.client_state)  # in fine-tuning there is no objective
        return copied({name: state[name] for name in names})
