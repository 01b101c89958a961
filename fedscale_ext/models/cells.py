"""Families whose models consist of transformable cells (FedTrans): their functions beyond those of a family.

All tensors of a cell are named ``cells.<cell_id>.…``; ids stay the same across descendants.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.spec_cache import cached_by_spec
from fedscale_ext.models.registry import Family, family, parameter_names, skeleton


class CellFamily(Family, Protocol):
    """A family with cells."""

    def cell_ids(self, spec: ModelSpec) -> tuple[str, ...]:
        """Return the ids of the cells, in the order in which a sample passes them."""
        ...

    def cell_group(self, spec: ModelSpec, cell_id: str) -> tuple[str, int]:
        """Return the channel group that widening the cell changes, and its number of channels."""
        ...

    def widened(self, spec: ModelSpec, cell_id: str, width: int) -> ModelSpec:
        """Return the spec with ``width`` channels in that group."""
        ...

    def deepened(self, spec: ModelSpec, cell_id: str, new_ids: Sequence[str]) -> ModelSpec:
        """Return the spec with new cells behind this one, with its channels."""
        ...

    def identity_zeros(self, spec: ModelSpec, cell_id: str) -> list[str]:
        """Return the names of the tensors that are zero in an inserted cell, so that it computes the identity."""
        ...


class OutputCellFamily(CellFamily, Protocol):
    """A family whose cells have output channels apart from those of :meth:`CellFamily.cell_group`.

    See :mod:`fedscale_ext.models.families.resnet`.
    """

    def output_group(self, spec: ModelSpec, cell_id: str) -> tuple[str, int]: ...  # noqa: D102

    def output_widened(self, spec: ModelSpec, cell_id: str, width: int) -> ModelSpec: ...  # noqa: D102


def cell_family(spec: ModelSpec) -> CellFamily:
    """Return the module of the spec's family; raise UserError if its models, or this one, have no cells."""
    module = family(spec)
    if not hasattr(module, "cell_ids"):
        raise UserError(_no_cells(f"models of the family {spec.family!r} have"))
    if not module.cell_ids(spec):
        raise UserError(_no_cells(f"this model of the family {spec.family!r} has"))
    return cast(CellFamily, module)


def output_cells(spec: ModelSpec) -> "OutputCellFamily | None":
    """Return the module of the spec's family if its cells' outputs can widen apart from their inner channels."""
    module = cell_family(spec)
    return cast(OutputCellFamily, module) if hasattr(module, "output_widened") else None


def widening_group(spec: ModelSpec, cell_id: str, output: bool = False) -> tuple[str, int]:
    """Return the channel group that widening a cell changes, and its width; with ``output``, its output group."""
    family = output_cells(spec) if output else None
    return cell_family(spec).cell_group(spec, cell_id) if family is None else family.output_group(spec, cell_id)


def widened_spec(spec: ModelSpec, cell_id: str, width: int, output: bool = False) -> ModelSpec:
    """Return the spec with this group at ``width`` channels; with its present width, only adapters are added."""
    family = output_cells(spec) if output else None
    if family is None:
        return cell_family(spec).widened(spec, cell_id, width)
    return family.output_widened(spec, cell_id, width)


def _no_cells(which: str) -> str:
    return (
        f"{which} no cells to widen or deepen; use a model that has, such as nasbench201_base, or give yours cells "
        "(docs/adding-a-model.md, What is optional)"
    )


def cell_of(name: str) -> str | None:
    """Return the id of the cell that a tensor belongs to; None for stem, reductions and head."""
    kind, _, rest = name.partition(".")
    return rest.partition(".")[0] if kind == "cells" else None


@cached_by_spec(1024)
def cell_parameters(spec: ModelSpec) -> Mapping[str, int]:
    """Return the number of trainable parameters of each cell, in the order of the forward pass."""
    module, counts = skeleton(spec), dict.fromkeys(cell_family(spec).cell_ids(spec), 0)
    for name in parameter_names(spec):
        cell = cell_of(name)
        if cell is not None:
            counts[cell] += module.get_parameter(name).numel()
    return counts
