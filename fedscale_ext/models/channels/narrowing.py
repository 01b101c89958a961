"""A network with fewer channels, made in place from the network as it is."""

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from fedscale_ext.core.model_spec import Axis, Layout


def narrow(module: nn.Module, layout: Layout, widths: Mapping[str, int]) -> None:
    """Leave the leading channels of each group in a network's tensors, and note the new sizes in its layers.

    A tensor that has several names (tied weights) stays one.

    Args:
        module: The network, changed in place.
        layout: Axes of its tensors, the same ones for all names of a tensor.
        widths: Number of channels by group; groups not named stay whole.

    """
    cut: dict[Tensor, Tensor] = {}
    for name, part in module.named_modules():
        prefix = f"{name}." if name else ""
        for tensors in (part._parameters, part._buffers):
            for tensor_name, tensor in tensors.items():
                axes = layout.get(prefix + tensor_name)
                if tensor is None or axes is None:
                    continue
                if tensor not in cut:
                    cut[tensor] = _cut(tensor, axes, widths)
                tensors[tensor_name] = cut[tensor]
        _resize(part)


def _cut(tensor: Tensor, axes: Sequence[Axis | None], widths: Mapping[str, int]) -> Tensor:
    slices = tuple(
        slice(widths[axis.group] * axis.repeat) if axis is not None and axis.group in widths else slice(None)
        for axis in axes
    )
    short = tensor.detach()[slices].clone()
    return nn.Parameter(short, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else short


def _resize(part: nn.Module) -> None:
    """Let a layer's numbers of channels be those of its weight."""
    weight = getattr(part, "weight", None)
    if not isinstance(weight, Tensor):
        return
    if isinstance(part, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        if part.groups > 1:  # the outputs of each input channel stay as many
            part.groups = weight.shape[0] // (part.out_channels // part.groups)
        part.out_channels, part.in_channels = weight.shape[0], weight.shape[1] * part.groups
    elif isinstance(part, nn.Linear):
        part.out_features, part.in_features = weight.shape
    elif isinstance(part, nn.modules.batchnorm._NormBase):
        part.num_features = weight.shape[0]
    elif isinstance(part, nn.LayerNorm) and len(part.normalized_shape) == 1:
        part.normalized_shape = tuple(weight.shape)
    elif isinstance(part, nn.GroupNorm):
        part.num_channels = weight.shape[0]
    elif isinstance(part, nn.PReLU):
        part.num_parameters = weight.shape[0]
    elif isinstance(part, nn.Embedding):
        part.embedding_dim = weight.shape[1]
