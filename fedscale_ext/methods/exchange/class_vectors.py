"""Clients that learn towards a vector of each class, which the server sends: a prototype or a guiding vector."""

import torch
from torch import Tensor

from fedscale_ext.method import Bench, ClientConfig
from fedscale_ext.methods.exchange.client import KNOWN_CLASSES, TensorExchangeClient

VECTORS = "prototypes"  # name in the message: a vector of each known class [known, F]; of all, if none is named


class GuidedClient(TensorExchangeClient):
    """Client whose features are drawn to a vector of each sample's class, which the server sent."""

    taps_features = True

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self._weight = float(conf.objective.get("weight", 0.0))
        self._tables: tuple[Tensor, Tensor] | None = None

    def feature_losses(self, output: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy plus the weighted mean squared distance to the vector of the sample's class, [...]."""
        return self.guided(self.losses(output, labels), features, labels, output.shape[-1])

    def guided(self, losses: Tensor, features: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Add the weighted distances of features [..., F] to losses [...]."""
        if not self.knows_vectors:
            return losses
        vectors, known = self.vectors(classes, features)
        distances = (features - vectors[labels]).square().mean(-1)
        return losses + self._weight * torch.where(known[labels], distances, 0.0)

    @property
    def knows_vectors(self) -> bool:
        """Whether the server sent the vector of any class."""
        return len(self.message.get(VECTORS, ())) > 0

    def vectors(self, classes: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of all classes [classes, F], zero where there is none, and which there are, bool [classes]."""
        if self._tables is None:
            rows = self.message[VECTORS]
            numbers = self.message[KNOWN_CLASSES].long() if KNOWN_CLASSES in self.message else torch.arange(classes)
            vectors = like.new_zeros(classes, rows.shape[1])
            vectors[numbers] = rows.to(like)
            known = torch.zeros(classes, dtype=torch.bool, device=like.device)
            known[numbers] = True
            self._tables = vectors, known
        return self._tables
