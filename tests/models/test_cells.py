"""Cells of every family: widening and deepening preserve the function, and what is new learns."""

import numpy as np
import pytest
import torch
from growing import assert_same_function, grow, random_state, trained
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.methods.fedtrans.model_transformer import lift, transform
from fedscale_ext.models.cells import cell_family, cell_of, cell_parameters

from .architectures import CELLS, CLASSES

calm = settings(deadline=None, derandomize=True, max_examples=15)
NAMED = {
    "nasbench201": "nasbench201_base",
    "resnet": "resnet18_speech",
    "mobilenetv3": "mobilenetv3_small",
    "vit": "vit_small",
}


@pytest.mark.parametrize("family", CELLS)
def test_growing_preserves_the_function_and_carries_later_weights_over(family):
    @given(
        spec=CELLS[family],
        seed=st.integers(0, 1000),
        policy=st.sampled_from(["alternate", "widen_only", "deepen_only"]),
        factor=st.sampled_from([1.25, 2.0, 2.5]),
        symmetry=st.sampled_from(["random_split", "equal"]),
    )
    @calm
    def check(spec, seed, policy, factor, symmetry):
        state = random_state(spec, seed)
        child_spec, child, steps = grow(spec, state, seed, 2, policy=policy, widen_factor=factor, symmetry=symmetry)
        assert models.layout(child_spec).keys() == child.keys()
        assert_same_function(spec, state, child_spec, child, seed)
        later = random_state(spec, seed + 1)
        assert_same_function(spec, later, child_spec, lift(spec, later, steps)[0], seed)

    check()


@pytest.mark.parametrize("family", CELLS)
def test_cells_own_their_tensors_and_grow_by_the_group_they_name(family):
    @given(spec=CELLS[family])
    @calm
    def check(spec):
        cells = cell_family(spec)
        names = {cell_of(name) for name in models.layout(spec)} - {None}
        assert names <= set(cells.cell_ids(spec)) == set(cell_parameters(spec))
        for cell in cells.cell_ids(spec):
            width = cells.cell_group(spec, cell)[1]
            wide = cells.widened(spec, cell, width + 3)
            group, widened = cells.cell_group(wide, cell)
            assert widened == width + 3
            assert models.group_widths(wide).get(group, widened) == widened  # nobody may read a NAS cell of nothing
            deep = cells.deepened(spec, cell, ["new1", "new2"])
            index = cells.cell_ids(spec).index(cell)
            assert cells.cell_ids(deep)[index : index + 3] == (cell, "new1", "new2")
            assert set(cells.identity_zeros(deep, "new1")) <= models.layout(deep).keys()

    check()


def named(family):
    return models.named_spec(NAMED[family], (2, 18, 20), CLASSES)


@pytest.mark.parametrize("family", CELLS)
def test_noise_disturbs_every_tensor_that_writes_replicas_and_nothing_else(family):
    @given(spec=CELLS[family], seed=st.integers(0, 1000), factor=st.sampled_from([1.25, 2.0]))
    @calm
    def check(spec, seed, factor):
        cells, state = cell_family(spec), random_state(spec, seed)
        cell = cells.cell_ids(spec)[seed % len(cells.cell_ids(spec))]
        old = cells.cell_group(spec, cell)[1]
        (wide, plain, _), (_, noisy, _) = (
            transform(
                spec, state, [cell], {}, symmetry=symmetry, widen_factor=factor,
                generator=np.random.default_rng(seed), next_cell_id=99,
            )
            for symmetry in ("equal", "equal+noise")
        )  # fmt: skip
        layout, group = models.layout(wide), cells.cell_group(wide, cell)[0]
        for name, tensor in noisy.items():
            axis = layout[name][0] if len(layout[name]) > 1 else None
            if axis is None or (axis.group, axis.role) != (group, "out"):
                assert torch.equal(tensor, plain[name])
                continue
            rows = old * axis.repeat
            assert torch.equal(tensor[:rows], plain[name][:rows])
            if plain[name].std() > 0:
                assert not (tensor[rows:] == plain[name][rows:]).any()

    check()


@pytest.mark.parametrize("family", CELLS)
@pytest.mark.parametrize(("symmetry", "apart"), [("random_split", True), ("equal", False), ("equal+noise", True)])
def test_replicas_diverge_unless_they_are_equal_and_undisturbed(family, symmetry, apart):
    spec = named(family)
    state = {name: t.double() if t.is_floating_point() else t for name, t in models.initial_state(spec, 3).items()}
    wide, child, (step,) = transform(
        spec, state, ["c1"], {}, symmetry=symmetry, generator=np.random.default_rng(5), next_cell_id=99
    )
    after, layout = trained(wide, child, 4), models.layout(wide)
    group, width = cell_family(wide).cell_group(wide, "c1")
    replica = len(step.g) - 1
    first = step.g[replica]
    distance = moved = 0.0
    for name in models.parameter_names(wide):
        axes = layout[name]
        if len(axes) > 1 and axes[0] is not None and axes[0].group == group and axes[0].role == "out":
            rows, before = (each[name].unflatten(0, (width, axes[0].repeat)) for each in (after, child))
            # columns of a cell's own channels are split among replicas; their sum is what counts
            keep = [dim for dim, axis in enumerate(axes) if axis is not None and axis.group == group and dim]
            rows, before = (each.sum([dim + 1 for dim in keep]) if keep else each for each in (rows, before))
            distance = max(distance, float((rows[replica] - rows[first]).abs().max()))
            moved = max(moved, float((rows[first] - before[first]).abs().max()))
    assert moved > 1e-5
    assert distance > 1e-6 if apart else distance < 1e-12


@pytest.mark.parametrize("family", CELLS)
def test_inserted_cells_learn(family):
    spec = named(family)
    state = {name: t.double() if t.is_floating_point() else t for name, t in models.initial_state(spec, 3).items()}
    deep, child, (step,) = transform(
        spec, state, ["c1"], {}, policy="deepen_only", generator=np.random.default_rng(7), next_cell_id=50
    )
    assert step.inserted == ("c50",)
    after = trained(deep, child, 6)
    names = [name for name in models.parameter_names(deep) if cell_of(name) == "c50"]
    still = [name for name in names if torch.equal(after[name], child[name])]
    assert not still
