"""Networks whose grouped convolutions became dense ones, which channels can be cut from one by one.

FedTrans's paper does so for HeteroFL and SplitMix (section 5.1): they slice the input channels of a
convolution, which a depthwise one does not have.
"""

import torch
from torch import Tensor, nn

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.registry import family, skeleton


def dense(spec: ModelSpec, state: dict[str, Tensor]) -> tuple[ModelSpec, dict[str, Tensor]]:
    """Spec and state without depthwise convolutions that compute the same function.

    Depthwise kernels [C, 1, k, k] come to lie on the diagonal of dense ones [C, C, k, k], which are
    zero elsewhere and trained like any other. A spec without grouped convolutions is given back as it
    is; UserError where the family cannot do without its own.
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
    result[channels, channels] = tensor[:, 0]
    return result
