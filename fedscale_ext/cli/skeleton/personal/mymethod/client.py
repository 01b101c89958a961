"""The clients' side of MyMethod: each keeps the last layers of its network."""

from typing import Any

from torch import nn

from fedscale_ext.method import ClientConfig, MultiModelExecutor
from fedscale_ext.methods.personal.personal_models import PersonalModelClient, copied


class MyMethodClient(PersonalModelClient):
    """Begins with the server's body and the layers that it keeps, alone and in a cohort.

    Override ``losses`` for another loss.
    """

    def reported(self, result: dict[str, Any], model: nn.Module, conf: ClientConfig) -> dict[str, Any]:
        """Add the client's trained layers to the result; the server stores them for its next round."""
        if conf.client_state is None:  # it keeps nothing, or fine-tunes
            return result
        state = model.state_dict()
        return {**result, "client_state": copied({name: state[name] for name in conf.objective["personal"]})}


class MyMethodExecutor(MultiModelExecutor):
    """The process that trains such clients."""

    client = MyMethodClient
