"""The clients' side of MyMethod: cross-entropy with smooth labels, as a start."""

import torch
from torch import Tensor

from fedscale_ext.method import Bench, ClientConfig, MultiModelClient


class MyMethodClient(MultiModelClient):
    """Its loss serves clients that train one by one, and those that train side by side as a cohort."""

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self.smoothing: float = conf.objective.get("smoothing", 0.0)  # from the work item's objective
        self.loss_key = self.smoothing  # a captured GPU step is reused only for equal keys

    def losses(self, output: Tensor, labels: Tensor) -> Tensor:
        """Loss of each sample: logits [..., classes] and labels int64 [...] -> [...]; mean of it is what is minimised.

        In a cohort of K clients with batches of B the shapes are [K, B, classes] and [K, B].
        """
        plain = super().losses(output, labels)
        if not self.smoothing:
            return plain
        even = -torch.log_softmax(output, -1).mean(-1)
        return (1 - self.smoothing) * plain + self.smoothing * even
