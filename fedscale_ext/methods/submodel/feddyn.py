"""FedDyn's gradients (Acar et al., ICLR 2021, Algorithm 1), kept as control variates are.

A client minimises L_i(w) - <h_i, w> + alpha / 2 |w - w_global|^2, and h_i becomes h_i - alpha (w_i - w_global), the
gradient of L_i where it ended. The server's h is the mean of h_i over all clients, which moves by
- alpha / m sum_i (w_i - w_global); its model is the mean of the w_i, less h / alpha.

A client's steps thus have the offset -h_i beside FedProx's term: what SCAFFOLD's have with c = 0.
"""

import torch

from fedscale_ext.core.types import State, WorkItem
from fedscale_ext.server.scaffold import ControlVariates, ModelVariates


class DynamicGradients(ControlVariates):
    """Each client's h_i. Its clients have the objective ``feddyn`` and the override ``prox_mu``, both alpha."""

    def shared(self, whole: ModelVariates, shapes: State) -> State:
        """Nothing: h is the server's."""
        return {name: torch.zeros_like(tensor) for name, tensor in shapes.items()}

    def traffic_bytes(self, item: WorkItem) -> int:
        """Nothing: a device keeps its h_i, and the server its h. Both change by models that travel anyway."""
        return 0

    def mean(self, key: str) -> State:
        """h of a whole model: the mean over all clients, those of this round with what they handed in. Clients who
        do not hold an entry count with zero."""
        whole = self._variates[key]
        dtypes = {name: tensor.dtype for name, tensor in self._shapes(self._pool[key]).items()}
        return {name: (total / whole.total_weight).to(dtypes[name]) for name, total in whole.total.items()}
