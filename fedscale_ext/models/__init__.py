"""Architectures as data: how a spec is built, what it costs, and the axes of its tensors."""

from fedscale_ext.core.model_spec import Axis, Cost, Layout, ModelSpec
from fedscale_ext.models.cost import cost
from fedscale_ext.models.files import configured_spec
from fedscale_ext.models.layers.dense import dense
from fedscale_ext.models.registry import (
    build,
    drawn_by,
    family,
    initial_state,
    layout,
    named_spec,
    outputs,
    parameter_names,
    searched,
)
from fedscale_ext.models.resizing import check_resizable, group_widths, resized, scaled
from fedscale_ext.models.taps import taps

__all__ = [
    "Axis",
    "Cost",
    "Layout",
    "ModelSpec",
    "build",
    "check_resizable",
    "configured_spec",
    "cost",
    "dense",
    "drawn_by",
    "family",
    "group_widths",
    "initial_state",
    "layout",
    "named_spec",
    "outputs",
    "parameter_names",
    "resized",
    "scaled",
    "searched",
    "taps",
]
