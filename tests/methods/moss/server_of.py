"""Moss's aggregator without a runtime: its hooks on small types, fed with made-up updates."""

from typing import Any

import torch

from fedscale_ext import models
from fedscale_ext.data.public import PublicData
from fedscale_ext.methods.moss.aggregator import MossAggregator
from methods.harness import CLASSES, SHAPE, server

TYPES = ["cnn_small", "single_exit_mlp", "lenet_6k"]
MACS = {name: models.cost(models.named_spec(name, SHAPE, CLASSES)).forward_macs for name in TYPES}


def samples(labels: bool = True) -> PublicData:
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(6, *SHAPE, generator=generator)
    y = torch.randint(CLASSES, (6,), generator=generator)
    return PublicData(x, y if labels else None, "6 samples of noise" + ("" if labels else ", with other classes"))


class WithData(MossAggregator):
    """Holds ``samples`` as its public data."""

    labels = True

    def public_data(self) -> PublicData:
        return samples(self.labels)


class WithOtherData(WithData):
    """Its public data are of other classes."""

    labels = False


def moss(cls: Any = WithData, **keys: Any) -> Any:
    """Six clients, two of each type, with two epochs of WIRE."""
    params = {"model": "cnn_small", "types": TYPES, "groups": [2, 2, 2], "epochs": 1, "lr": 0.01, **keys}
    capacity = params.pop("capacity", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    for name in [name for name, value in params.items() if value is None]:
        del params[name]
    return server(cls, "moss", capacity=capacity, **params)
