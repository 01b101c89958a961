"""Records of what a transformation did to each axis of a tensor, to check the equations from a job's records."""

from collections.abc import Sequence
from typing import Any

from fedscale_ext import models
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.fedtrans.model_transformer import Transformation
from fedscale_ext.models.cells import cell_family, widened_spec, widening_group
from fedscale_ext.models.registry import skeleton


def step_axes(spec: ModelSpec, steps: Sequence[Transformation]) -> list[dict[str, Any]]:
    """Record each step from a model to its child, for checks of the equations.

    Args:
        spec: Spec of the parent.
        steps: Steps that lead to the child.

    Returns:
        JSON of each step: its record; ``axes`` (tensor, axis, "out" where channels are copied or "in" where they are
        also split, entries per channel); ``identities``, the shapes of new adapters.

    """
    cells, records = cell_family(spec), []
    for step in steps:
        axes: list[list[Any]] = []
        identities: dict[str, list[int]] = {}
        if step.op == "widen":
            attached = widened_spec(spec, step.cell_id, max(step.g) + 1, step.output)
            group, _ = widening_group(attached, step.cell_id, step.output)
            axes = [
                [name, dim, axis.role, axis.repeat]
                for name, each in models.layout(attached).items()
                for dim, axis in enumerate(each)
                if axis is not None and axis.group == group
            ]
            old = skeleton(spec).state_dict()
            identities = {
                name: list(tensor.shape)
                for name, tensor in skeleton(attached).state_dict().items()
                if name not in old
            }  # fmt: skip
            spec = widened_spec(spec, step.cell_id, len(step.g), step.output)
        else:
            spec = cells.deepened(spec, step.cell_id, step.inserted)
        records.append({**step.to_json(), "axes": axes, "identities": identities})
    return records
