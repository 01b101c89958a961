"""Numbers of channels of a spec's groups, and the spec with other numbers (HeteroFL, FjORD, FLuID, …).

The spec of a submodel by index map ``i`` (``submodels.extract``) is ``resized(spec, {group: len(i)})``.
"""

from collections.abc import Mapping
from typing import Any, cast

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.registry import family, layout, skeleton

FIXED = ("input", "classes")  # groups that data and task fix


@cached_by_spec(1024)
def group_widths(spec: ModelSpec) -> Mapping[str, int]:
    """Return the number of channels of each group of the spec's layout, "input" and "classes" included."""
    shapes = {name: tensor.shape for name, tensor in skeleton(spec).state_dict().items()}
    return {
        axis.group: length // axis.repeat
        for name, axes in layout(spec).items()
        for axis, length in zip(axes, shapes[name], strict=True)
        if axis is not None
    }


def resized(spec: ModelSpec, widths: Mapping[str, int]) -> ModelSpec:
    """Return the spec with other numbers of channels; its tensors keep their names and order of axes.

    Args:
        spec: The model.
        widths: Number of channels by group of the layout; groups not named stay.

    Raises:
        ValueError: If the layout lacks a group, a number is below 1, or "input" or "classes" would change.
        UserError: If the family cannot be resized.

    """
    present = group_widths(spec)
    for group, width in widths.items():
        if group not in present:
            raise ValueError(f"the layout has no group {group!r}")
        if width < 1 or (group in FIXED and width != present[group]):
            raise ValueError(f"group {group!r} of length {present[group]} cannot have length {width}")
    changed = {group: int(width) for group, width in widths.items() if width != present[group]}
    if not changed:
        return spec
    check_resizable(spec)
    child: ModelSpec = cast(Any, family(spec)).resized(spec, changed)
    return child


def check_resizable(spec: ModelSpec) -> None:
    """Raise UserError if the spec's family cannot be resized; its layout may then name no group at all."""
    if not hasattr(family(spec), "resized"):
        raise UserError(
            f"models of the family {spec.family!r} cannot be made narrower; use a model of another family, such as cnn"
        )


def scaled(spec: ModelSpec, rate: float) -> ModelSpec | None:
    """Return the spec whose hidden activations are divided by ``rate``; None if the family has no such form.

    With BatchNorm after every convolution the factor would have no effect.
    """
    scale = getattr(family(spec), "scaled", None)
    return None if scale is None else scale(spec, rate)
