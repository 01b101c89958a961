"""Layouts of the layers that families share; ``name`` is the layer's, ``source`` and ``target`` channel groups."""

from fedscale_ext.core.model_spec import Axis, Layout

_KERNEL = (None, None)


def conv(name: str, source: str, target: str, bias: bool = False) -> Layout:
    """A Conv2d of one group."""
    axes: Layout = {f"{name}.weight": (Axis(target, "out"), Axis(source, "in"), *_KERNEL)}
    return axes | ({f"{name}.bias": (Axis(target, "out"),)} if bias else {})


def norm(name: str, group: str) -> Layout:
    """A BatchNorm2d."""
    vector = (Axis(group, "out"),)
    names = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{part}": vector for part in names}, f"{name}.num_batches_tracked": ()}


def conv_bn(name: str, source: str, target: str) -> Layout:
    """A :class:`~fedscale_ext.models.parts.ConvBN` of one group."""
    return conv(f"{name}.conv", source, target) | norm(f"{name}.bn", target)


def depthwise_bn(name: str, group: str) -> Layout:
    """A ConvBN whose convolution [C, 1, k, k] makes each channel of its own only."""
    return {f"{name}.conv.weight": (Axis(group, "out"), None, *_KERNEL)} | norm(f"{name}.bn", group)


def linear(name: str, source: str, target: str, reads: int = 1, writes: int = 1) -> Layout:
    """A Linear with bias, with so many entries per channel of the group that it reads and writes."""
    out = Axis(target, "out", writes)
    return {f"{name}.weight": (out, Axis(source, "in", reads)), f"{name}.bias": (out,)}
