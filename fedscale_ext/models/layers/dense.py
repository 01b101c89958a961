"""Networks with dense instead of grouped convolutions, so that single input channels can be removed.

FedTrans's paper does so for HeteroFL and SplitMix (Appendix A.1, on arXiv): they slice the input channels of a
convolution, which a depthwise one does not have.
"""

import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.registry import family, skeleton


def dense(spec: ModelSpec, state: dict[str, Tensor]) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Return a spec and state without depthwise convolutions that compute the same function.

    Depthwise kernels [C, 1, k, k] are copied to the diagonal of dense ones [C, C, k, k]. These are zero elsewhere and
    train like any other.

    Args:
        spec: The model.
        state: Its tensors.

    Returns:
        The dense model's spec and tensors; the arguments, if it has no grouped convolutions.

    Raises:
        UserError: If the family's grouped convolutions cannot be made dense.

    """
    module = skeleton(spec)
    if not any(isinstance(part, nn.Conv2d) and part.groups > 1 for part in module.modules()):
        return spec, state
    make = getattr(family(spec), "dense", None)
    if make is None:
        raise UserError(f"the grouped convolutions of the family {spec.family!r} cannot be made dense; use mobilenetv3")
    child: ModelSpec = make(spec)
    shapes = {name: tensor.shape for name, tensor in skeleton(child).state_dict().items()}
    return child, {name: _diagonal(tensor, shapes[name]) for name, tensor in state.items()}


def _diagonal(tensor: Tensor, shape: torch.Size) -> Tensor:
    if tensor.shape == shape:
        return tensor
    result, channels = tensor.new_zeros(shape), torch.arange(len(tensor))
    result[channels, channels] = tensor[:, 0]  # [C, k, k]
    return result
