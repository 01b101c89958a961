"""Whole blocks of ResNets widen (`fedtrans.widen: block`), with projections where shortcuts need one."""

import json

import numpy as np
import pytest
import torch
from growing import assert_same_function, grow, random_state, trained
from hypothesis import given, settings
from hypothesis import strategies as st
from models.architectures import resnet_spec

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.methods.fedtrans.model_transformer import Transformation, affordable_cells, lift, transform
from fedscale_ext.models.families import resnet

from ..harness import play, server

calm = settings(deadline=None, derandomize=True, max_examples=25)
BLOCKS = [resnet.Block("c0", 3, 4), resnet.Block("c1", 3, 4), resnet.Block("c2", 5, 6, 2, True)]
SPEC = resnet.make((2, 9, 8), 4, 4, BLOCKS)


def widened(spec, state, cell, seed=1, **options):
    options = {"widen": "block", "generator": np.random.default_rng(seed), "next_cell_id": 99, **options}
    return transform(spec, state, [cell], {}, **options)


@given(
    spec=resnet_spec(), seed=st.integers(0, 1000), symmetry=st.sampled_from(["random_split", "equal"]),
    policy=st.sampled_from(["alternate", "widen_only"]), factor=st.sampled_from([1.25, 2.0, 2.5]),
)  # fmt: skip
@calm
def test_the_function_is_preserved_and_later_weights_are_carried_over(spec, seed, symmetry, policy, factor):
    state = random_state(spec, seed)
    options = {"widen": "block", "policy": policy, "widen_factor": factor, "symmetry": symmetry}
    child_spec, child, steps = grow(spec, state, seed, 3, **options)
    assert models.layout(child_spec).keys() == child.keys()
    assert_same_function(spec, state, child_spec, child, seed)  # in train and eval mode
    later = random_state(spec, seed + 1)
    again = tuple(Transformation.from_json(json.loads(json.dumps(step.to_json()))) for step in steps)
    assert_same_function(spec, later, child_spec, lift(spec, later, again)[0], seed)


def test_the_blocks_output_widens_and_what_follows_keeps_its_width() -> None:
    spec, state, steps = widened(SPEC, random_state(SPEC, 1), "c0")
    blocks = {block.cell_id: block for block, _, _ in resnet.blocks(spec)}
    assert [(step.op, step.output) for step in steps] == [("widen", False), ("widen", True)]
    assert (blocks["c0"].hidden, blocks["c0"].width, blocks["c0"].projection) == (6, 8, "linear")
    assert (blocks["c1"].hidden, blocks["c1"].width, blocks["c1"].projection) == (3, 4, "linear")
    assert blocks["c2"] == resnet.Block("c2", 5, 6, 2, True)
    assert state["cells.c0.adapter.weight"].shape == (8, 4, 1, 1)
    assert state["cells.c1.adapter.weight"].shape == (4, 8, 1, 1)  # folds what it reads
    assert spec == models.ModelSpec.from_json(json.loads(json.dumps(spec.to_json())))
    last, _, _ = widened(SPEC, random_state(SPEC, 1), "c2")  # its shortcut is a projection already
    assert [block.projection for block, _, _ in resnet.blocks(last)] == [False, False, True]
    assert models.group_widths(last)["cells.c2"] == 12


def test_wide_children_cost_more_than_by_inner_channels_alone() -> None:
    inner = widened(SPEC, random_state(SPEC, 1), "c0", widen="cell")[0]
    whole = widened(SPEC, random_state(SPEC, 1), "c0")[0]
    first, second, third = (models.cost(spec).forward_macs for spec in (SPEC, inner, whole))
    assert first < second < third
    between = (second + third) / 2
    keys = {"next_cell_id": 99, "active": {"c0": 1.0}, "last_op": {}, "max_macs": between}
    assert affordable_cells(SPEC, ["c0"], widen="cell", **keys) == ["c0"]
    assert affordable_cells(SPEC, ["c0"], widen="block", **keys) is None


@pytest.mark.parametrize(("widen", "ratio"), [("cell", 1.94), ("block", 3.66)])
def test_macs_grow_about_twofold_by_inner_channels_and_fourfold_by_whole_blocks(widen: str, ratio: float) -> None:
    blocks = [["c0", 4, 4, 1, False], ["c1", 8, 8, 2, True], ["c2", 16, 16, 2, True], ["c3", 28, 28, 2, True]]
    fields = {"blocks": blocks, "input_shape": [1, 49, 40], "kernel": 3, "num_classes": 35, "stem": 4, "stride": 2}
    # the base of evals/fedtrans on Speech Commands
    spec = models.ModelSpec.from_json({"family": "resnet", "fields": {**fields, "pool": False}})
    wide = transform(
        spec,
        random_state(spec, 1),
        ["c0", "c1", "c2", "c3"],
        {},
        widen=widen,
        generator=np.random.default_rng(1),
        next_cell_id=99,
    )[0]
    assert models.cost(wide).forward_macs / models.cost(spec).forward_macs == pytest.approx(ratio, abs=0.01)


def test_replicas_of_outputs_diverge() -> None:
    state = {name: t.double() if t.is_floating_point() else t for name, t in models.initial_state(SPEC, 3).items()}
    spec, child, (_, step) = widened(SPEC, state, "c0")
    after = trained(spec, child, 4)
    replica, first = len(step.g) - 1, step.g[-1]
    for name in ("cells.c0.b.conv.weight", "cells.c0.adapter.weight"):
        assert torch.equal(child[name][replica], child[name][first])
        assert float((after[name][replica] - after[name][first]).abs().max()) > 1e-6
    assert torch.allclose(child["cells.c1.adapter.weight"].sum(1), torch.ones(4, 1, 1, dtype=torch.float64))


def test_the_default_widens_inner_channels_and_draws_as_before() -> None:
    state = random_state(SPEC, 1)
    plain = transform(SPEC, state, ["c0"], {}, generator=np.random.default_rng(1), next_cell_id=99)
    named = widened(SPEC, state, "c0", widen="cell")
    assert plain[0] == named[0] and plain[2] == named[2] and len(plain[2]) == 1
    whole = widened(SPEC, state, "c0")[2]
    assert whole[0] == plain[2][0]  # the output is drawn behind


@pytest.mark.parametrize(("widen", "outputs"), [("cell", False), ("block", True)])
def test_a_job_grows_as_it_is_asked_to(widen: str, outputs: bool) -> None:
    keys = {"gamma": 1, "delta": 1, "beta": 1e9, "alpha": 0.0, "widen": widen}
    aggregator = server(FedTransAggregator, "fedtrans", model="resnet18_speech", shape=(1, 20, 20), **keys)
    for number in (1, 2):
        play(aggregator, number, dict.fromkeys(range(1, 7), 1.0))
    steps = [step for lineage in aggregator.lineages for step in lineage.steps]
    assert len(aggregator.pool) == 2 and any(step.output for step in steps) == outputs
    assert any("(output)" in step for step in aggregator.lineage()["m1"]["steps"]) == outputs


@pytest.mark.parametrize("model", ["nasbench201_base", "vit_small"])
def test_families_without_blocks_are_refused(model: str) -> None:
    server(FedTransAggregator, "fedtrans", model=model, widen="block", transform_policy="deepen_only")  # widens nothing
    with pytest.raises(UserError, match=r"fedtrans\.widen is block, which models of the family"):
        server(FedTransAggregator, "fedtrans", model=model, shape=(1, 16, 16), widen="block")
