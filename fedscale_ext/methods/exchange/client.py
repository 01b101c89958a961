"""Clients that keep their models and exchange small tensors.

``conf.client_state`` is the client's model (``methods/personal/personal_models.py``). ``conf.shared_tensors`` is the
server's message, the same in training and in tests. ``conf.objective`` has the hyperparameters that clients know.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from fedscale_ext.method import Bench, ClientConfig, State
from fedscale_ext.methods.personal.personal_models import PersonalModelClient
from fedscale_ext.models.layers.final_layer import deepest, final_layer, input_of

_EXACT = "donot_use_mm_for_euclid_dist"  # cdist without the rounding of its faster form
KNOWN_CLASSES = "classes"  # name in what a client receives: the classes of its rows, int32 [known]
COUNTS = "counts"  # name of a client's numbers of samples by class, int32 [classes]


class TensorExchangeClient(PersonalModelClient):
    """Base of such clients.

    ``layer`` is the name of the last layer of the client's model, whose inputs are its features. ``message`` has the
    tensors that the server sent.
    """

    taps_features: ClassVar[bool] = False  # whether the loss needs features

    def __init__(self, conf: ClientConfig, bench: Bench) -> None:
        super().__init__(conf, bench)
        self.layer = final_layer(bench.spec(conf.model_key)).name
        self.tap = self.layer if self.taps_features else None
        self.message: State = conf.shared_tensors or {}

    def features_and_logits(self, model: nn.Module, x: Tensor, conf: ClientConfig) -> tuple[Tensor, Tensor]:
        """Return features [n, width] and logits [n, classes] of samples [n, C, H, W], in evaluation."""
        layer, parts = model.eval().get_submodule(self.layer), []
        with torch.no_grad(), input_of(layer) as last:
            for part in x.split(conf.test_bsz):
                logits = deepest(model(part), 2)
                parts.append((last.features, logits))
        features, logits = (torch.cat(each).float().cpu() for each in zip(*parts, strict=True))
        if not (torch.isfinite(features).all() and torch.isfinite(logits).all()):
            raise FloatingPointError("its features or logits are not finite")
        return features, logits


def class_means(rows: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean of the rows of each class.

    Args:
        rows: A row for each sample, [n, ...].
        labels: The samples' classes, int64 [n].
        classes: Number of classes.

    Returns:
        The means [classes, ...], zero for a class without samples, and the samples of each class, int32 [classes].

    """
    labels = labels.cpu()
    counts = torch.bincount(labels, minlength=classes)
    total = torch.zeros(classes, *rows.shape[1:], dtype=torch.float64).index_add_(0, labels, rows.double())
    means = total / counts.clamp(min=1).view(-1, *[1] * (rows.dim() - 1))
    return means.to(rows.dtype), counts.int()


def client_rows(tables: Tensor, labels: Tensor) -> Tensor:
    """Look up each sample's row in its client's table.

    Args:
        tables: A row for each class, [classes, ...]; of a cohort [K, classes, ...].
        labels: Class numbers, int64 [B]; of the first k clients of a cohort [k, B].

    Returns:
        The rows, [B, ...] or [k, B, ...].

    """
    if labels.dim() == 1:
        return tables[labels]
    return tables[torch.arange(len(labels), device=labels.device)[:, None], labels]


class NearestPrototype(nn.Module):
    """Predicts the class whose prototype is nearest to a sample's features.

    Its logits fall by one for each unit of Euclidean distance. The farthest prototype has 1, and classes without a
    prototype have 0, so that they are never predicted.

    Args:
        model: The network.
        layer: Name of its last layer.
        prototypes: A prototype for each class, [classes, F].
        known: Which classes have one, bool [classes]; at least one.

    """

    def __init__(self, model: nn.Module, layer: str, prototypes: Tensor, known: Tensor) -> None:
        super().__init__()
        self._layer, self._prototypes, self._known = layer, prototypes, known
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [B, classes] of samples [B, C, H, W]."""
        with input_of(self.model.get_submodule(self._layer)) as last:
            self.model(x)
        distances = torch.cdist(last.features, self._prototypes.to(last.features), compute_mode=_EXACT)
        farthest = distances.masked_fill(~self._known, 0.0).amax(1, keepdim=True)
        return torch.where(self._known, 1.0 + farthest - distances, 0.0)
