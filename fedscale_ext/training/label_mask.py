"""Masks absent classes in the loss and in the mean, for clients that have samples of few classes.

This is the "Masking Trick" of HeteroFL (Diao et al., ICLR 2021, section 3). Logits of a client's absent classes are set
to zero in its loss. A client takes part in the mean of a class's rows only if it has samples of that class. The
objective
``{"own_classes": True}`` turns both on.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.core.types import State

GROUP = "classes"  # name of the class group in every family's layout


def present(labels: Sequence[Tensor], num_classes: int) -> Tensor:
    """Return which classes are among each client's labels [n], bool [clients, classes]."""
    return torch.stack([torch.bincount(client_labels, minlength=num_classes) > 0 for client_labels in labels])


def masked(logits: Tensor, present_classes: Tensor) -> Tensor:
    """Return the logits [..., classes] with zeros where ``present_classes`` (broadcastable) is False."""
    return torch.where(present_classes, logits, torch.zeros((), dtype=logits.dtype, device=logits.device))


@cached_by_spec(1024)
def class_axes(spec: ModelSpec) -> Mapping[str, int]:
    """Return the axis of the classes of each tensor that has one, by tensor name."""
    return {
        name: dim
        for name, axes in models.layout(spec).items()
        for dim, axis in enumerate(axes)
        if axis is not None and axis.group == GROUP
    }


def class_rows(spec: ModelSpec, per_class: Tensor, lead: int = 0) -> State:
    """View values per class in a shape that broadcasts to each tensor with an axis of classes.

    Args:
        spec: The model.
        per_class: Values [*lead, classes].
        lead: Number of leading axes.

    Returns:
        By tensor name, a view that broadcasts to [*lead, *shape].

    """
    layout = models.layout(spec)
    shapes = {
        name: [-1 if axis == dim else 1 for axis in range(len(layout[name]))] for name, dim in class_axes(spec).items()
    }
    return {name: per_class.view(*per_class.shape[:lead], *shape) for name, shape in shapes.items()}
