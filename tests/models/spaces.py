"""Spaces of supernets, the published ones and small ones, and what goes through them."""

from typing import Any

import numpy as np
import torch

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.spaces import SPACES

CIFAR, SPEECH, TEXT, SMALL = ((3, 32, 32), 10), ((1, 40, 51), 12), ((1, 1, 80), 90), ((2, 18, 20), 4)
INPUTS = {"cnn_s": SPEECH, "rnn": TEXT, "rnn_positions": TEXT}


def space(name: str) -> ModelSpec:
    return models.named_spec(name, *INPUTS.get(name, CIFAR))


def short_rnn(**fields: Any) -> ModelSpec:
    sizes = {"symbols": 7, "embedding": 3, "hidden": 4, **fields}
    return supernet.make((1, 1, 6), 7, **{**SPACES["rnn"], **sizes})


def tiny() -> ModelSpec:
    return models.named_spec("cnn_tiny", *SMALL)


SMALL_SPACES = {
    "cnn_tiny": tiny,
    "cnn_s": lambda: models.named_spec("cnn_s", (1, 33, 40), 4),
    "cifar10_extra_range": lambda: supernet.make(
        (2, 9, 12), 4, form="cnn", stem=(4, 1), blocks=(1, 0, 1), operators=SPACES["cifar10_extra_range"]["operators"],
        reductions=[("separable", 6, 2), ("separable", 8, 1), ("conv", 5, 1)],
    ),
    "rnn": short_rnn,
    "rnn_positions": lambda: short_rnn(readout="all"),
}  # fmt: skip


def inputs(spec: ModelSpec, batch: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if spec["form"] == "rnn":
        return torch.randint(0, spec["symbols"], (batch, *spec["input_shape"]), generator=generator).to(dtype)
    return torch.randn(batch, *spec["input_shape"], generator=generator, dtype=dtype)


def drawn(spec: ModelSpec, seed: int) -> tuple[str, ...]:
    rng = np.random.default_rng(seed)
    return tuple(held[rng.integers(len(held))] for held in spec["ops"])
