"""Memory of a training step: weights, gradients, the optimizer's state, and activations.

Activations are measured on the meta device: every storage that automatic differentiation saves counts once. The
workspace of a device's library is left out, so that the figures of methods are comparable.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.registry import build, searched
from fedscale_ext.models.supernet.family import Searchable


class TrainingMemory(NamedTuple):
    """Bytes of the whole state, of the gradients, of the optimizer's state, and of activations."""

    state: int
    gradients: int
    optimizer: int
    activations: int

    def megabytes(self) -> dict[str, float]:
        """Return the megabytes of each part, and ``peak_mb`` of all together.

        The peak is an upper bound, because activations are freed while gradients are computed.
        """
        parts = {f"{name}_mb": size / 1e6 for name, size in self._asdict().items()}
        return {"peak_mb": sum(self) / 1e6, **parts}


@cached_by_spec(4096)
def training_memory(spec: ModelSpec, batch: int, path: Sequence[str] | None = None, moments: int = 1) -> TrainingMemory:
    """Return the memory of a training step in float32.

    A supernet's state and moments are those of all its operators, its gradients those of the path.

    Args:
        spec: The model.
        batch: Number of samples of a step.
        path: The operators that a supernet runs, a tuple.
        moments: Values per parameter in the optimizer's state (momentum 1, Adam 2).

    Raises:
        ValueError: If the model is a supernet and there is no path.

    """
    with torch.device("meta"):
        module = build(spec).train()
        x = torch.empty(batch, *spec["input_shape"])
    if searched(spec):
        if path is None:
            raise ValueError("a supernet runs a path: say which")
        cast(Searchable, module).choose(path)
    state_storages = {tensor.untyped_storage()._cdata for tensor in module.state_dict(keep_vars=True).values()}
    saved_storages: dict[int, tuple[int, Any]] = {}  # keeps storages alive, so that their numbers are not reused

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in state_storages:
            saved_storages[storage._cdata] = storage.nbytes(), storage
        return tensor

    with torch.device("meta"), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = module(x)
    parameters = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    with torch.autograd.set_detect_anomaly(False):  # looking for NaN reads values, and these tensors have none
        used = torch.autograd.grad(output.sum(), list(parameters.values()), allow_unused=True)
    gradients = sum(gradient.nbytes for gradient in used if gradient is not None)
    return TrainingMemory(
        state=sum(tensor.nbytes for tensor in module.state_dict().values()),
        gradients=gradients,
        optimizer=moments * sum(parameter.nbytes for parameter in parameters.values()),
        activations=sum(size for size, _ in saved_storages.values()),
    )
