"""Clients that learn their own classes only, and leave the others' rows of the classifier alone.

HeteroFL (Diao et al., ICLR 2021, section 3, "Masking Trick") for clients that hold few classes: logits of absent
classes are set to zero in the loss, and a client takes part in the mean of a class's rows only if it has
samples of that class. The objective ``{"own_classes": True}`` asks for both.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import State

GROUP = "classes"  # of every family's layout


def present(labels: Sequence[Tensor], num_classes: int) -> Tensor:
    """bool [clients, classes]: which classes are among each client's labels."""
    return torch.stack([torch.bincount(own, minlength=num_classes) > 0 for own in labels])


def masked(output: Tensor, there: Tensor) -> Tensor:
    """Logits [..., classes] with zeros where ``there`` (broadcastable) is False."""
    return torch.where(there, output, torch.zeros((), dtype=output.dtype, device=output.device))


@lru_cache(maxsize=1024)
def class_axes(spec: ModelSpec) -> Mapping[str, int]:
    """The axis of the classes, by name of the tensors that have one."""
    return {
        name: dim
        for name, axes in models.layout(spec).items()
        for dim, axis in enumerate(axes)
        if axis is not None and axis.group == GROUP
    }


def class_rows(spec: ModelSpec, per_class: Tensor, lead: int = 0) -> State:
    """Values [*lead, classes] in a shape that broadcasts to each tensor [*lead, *shape] that has an axis of classes."""
    layout = models.layout(spec)
    shapes = {
        name: [-1 if place == dim else 1 for place in range(len(layout[name]))]
        for name, dim in class_axes(spec).items()
    }
    return {name: per_class.view(*per_class.shape[:lead], *shape) for name, shape in shapes.items()}
