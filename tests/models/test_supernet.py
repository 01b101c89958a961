"""Supernets: restriction, choice of a path, and what does not fit together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.counting import measure
from fedscale_ext.models.registry import skeleton
from fedscale_ext.models.stacked.network import Mapped, Stacked, stacked
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.spaces import SPACES
from fedscale_ext.submodels.model_pool import ModelPool
from tests.models.spaces import CIFAR, SMALL, SMALL_SPACES, drawn, inputs, short_rnn, space, tiny

# ---- costs ----


@pytest.mark.parametrize("name", SPACES)
def test_the_cost_of_a_path_is_what_its_model_is_measured_to_cost(name: str) -> None:
    spec = SMALL_SPACES.get(name, tiny)()
    table = supernet.tables(spec)
    for path in [supernet.dearest_path(spec), supernet.cheapest_path(spec), *(drawn(spec, seed) for seed in range(3))]:
        small = supernet.path_of(spec, path)
        cost = models.cost(small)
        assert cost == measure(skeleton(small), spec["input_shape"])
        assert cost.forward_macs == supernet.path_cost(table, path)
        picked = np.arange(len(path)), table.indices(path)
        assert cost.parameters == table.fixed_parameters + table.parameters[picked].sum()
        assert cost.bytes == table.fixed_bytes + table.bytes[picked].sum()
        assert table.path(table.indices(path)) == path
    assert len({supernet.path_cost(table, drawn(spec, seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize("name", SPACES)
def test_a_supernet_costs_all_its_parameters_and_its_dearest_path(name: str) -> None:
    spec = SMALL_SPACES.get(name, tiny)()
    cost, dear = models.cost(spec), models.cost(supernet.path_of(spec, supernet.dearest_path(spec)))
    assert (cost.forward_macs, cost.training_macs) == (dear.forward_macs, dear.training_macs)
    assert cost.forward_macs >= max(models.cost(supernet.path_of(spec, drawn(spec, s))).forward_macs for s in range(9))
    state = models.initial_state(spec, 1)
    assert cost.bytes == sum(tensor.nbytes for tensor in state.values())
    assert cost.parameters == sum(p.numel() for p in models.build(spec).parameters())
    assert list(models.layout(spec)) == list(state)
    assert all(len(axes) == state[tensor].dim() for tensor, axes in models.layout(spec).items())


def test_named_paths_are_the_dearest_and_the_cheapest() -> None:
    table = supernet.tables(tiny())
    costs = {kind: models.cost(models.named_spec(f"cnn_tiny_{kind}", *SMALL)) for kind in ("largest", "smallest")}
    assert costs["largest"].forward_macs == models.cost(tiny()).forward_macs
    assert costs["smallest"].forward_macs == table.fixed_macs  # identities
    assert supernet.cheapest_path(short_rnn())[:3] == ("linear", "zero", "identity")


def test_unsupported_operators_cost_infinitely_much() -> None:
    table = supernet.tables(tiny(), unsupported=("mbconv3", "conv1"))
    assert np.isinf(table.macs[:, [0, 6]]).all() and np.isfinite(table.macs[:, 1:6]).all()
    assert table.held.all()
    assert supernet.path_cost(table, ("identity",) * 5 + ("conv1",)) == np.inf
    with pytest.raises(UserError, match="no operator 'lstn'; did you mean 'lstm'"):
        supernet.tables(short_rnn(), unsupported=["lstn"])
    only = supernet.restricted(tiny(), [("conv1", "mbconv3")] * 6)
    with pytest.raises(UserError, match="all operators of layer 0 are unsupported: conv1, mbconv3; leave one"):
        supernet.tables(only, unsupported=("mbconv3", "conv1"))


# ---- restriction and choice ----


@pytest.mark.parametrize("name", SMALL_SPACES)
@given(data=st.data())
@settings(max_examples=3)
def test_what_is_restricted_computes_the_same_bit_for_bit(name: str, data: st.DataObject) -> None:
    spec = SMALL_SPACES[name]()
    path = drawn(spec, data.draw(st.integers(0, 1000)))
    held = [
        [op for op in ops if op == chosen or data.draw(st.booleans())]
        for ops, chosen in zip(spec["ops"], path, strict=True)
    ]
    whole, state, x = models.build(spec), models.initial_state(spec, 3), inputs(spec, 5)
    whole.load_state_dict(state)
    whole.choose(path)
    for small in (supernet.restricted(spec, held), supernet.path_of(spec, path)):
        tensors = {tensor: state[tensor].clone() for tensor in models.layout(small)}
        part = models.build(small)
        part.load_state_dict(tensors)
        if models.searched(small):
            part.choose(path)
        for training in (True, False):
            whole.load_state_dict(state)
            assert torch.equal(whole.train(training)(x), part.train(training)(x))
            part.load_state_dict(tensors)


@pytest.mark.parametrize("name", SMALL_SPACES)
def test_operators_that_are_not_chosen_are_not_touched(name: str) -> None:
    spec = SMALL_SPACES[name]()
    module, path = models.build(spec), drawn(spec, 5)
    before = {tensor: value.clone() for tensor, value in module.state_dict().items()}
    module.choose(path)
    module(inputs(spec, 4)).square().sum().backward()
    chosen = {f"layers.{layer}.{name}" for layer, name in enumerate(path)}
    for tensor, parameter in module.named_parameters():
        assert (parameter.grad is not None) == (operator_of(tensor) in {None, *chosen}), tensor
    for tensor, buffer in module.named_buffers():
        if operator_of(tensor) not in {None, *chosen}:
            assert torch.equal(buffer, before[tensor])
    again = tuple(held[0] for held in spec["ops"])
    module.choose(again)
    assert not torch.equal(module.eval()(inputs(spec, 4)), _chosen(module, path, inputs(spec, 4)))


def operator_of(tensor: str) -> str | None:
    return ".".join(tensor.split(".")[:3]) if tensor.startswith("layers.") else None


def _chosen(module: Any, path: Sequence[str], x: torch.Tensor) -> torch.Tensor:
    module.choose(path)
    output: torch.Tensor = module(x)
    return output


def test_without_a_choice_nothing_runs() -> None:
    module: Any = models.build(tiny())
    with pytest.raises(RuntimeError, match="choose a path"):
        module(inputs(tiny(), 2))
    with pytest.raises(ValueError, match="the path has 1 operators; this network has 6 layers"):
        module.choose(["conv1"])
    with pytest.raises(ValueError, match="layer 5 has no operator 'lstm'; it holds conv1"):
        module.choose(["conv1"] * 5 + ["lstm"])
    assert all(layer.chosen is None for layer in module.layers)  # a refused path changes nothing
    small: Any = models.build(supernet.restricted(tiny(), [("conv1",)] * 5 + [("conv1", "identity")]))
    with pytest.raises(RuntimeError, match="choose a path"):
        small(inputs(tiny(), 2))


def test_a_subspace_is_a_part_in_the_pool() -> None:
    spec, pool = tiny(), ModelPool()
    pool.add("supernet", spec, models.initial_state(spec, 1))
    small = supernet.restricted(spec, [("identity", "conv1")] * 6)
    assert small["ops"] == (("conv1", "identity"),) * 6  # in the order of the whole
    part = pool.add_part("subspace", "supernet", small, {})
    assert part.state.keys() == models.build(small).state_dict().keys()
    assert all(torch.equal(tensor, pool["supernet"].state[name]) for name, tensor in part.state.items())
    assert {name.split(".")[2] for name in part.state if name.startswith("layers.")} == {"conv1"}


def test_paths_train_in_cohorts_and_supernets_do_not() -> None:
    path = supernet.path_of(
        tiny(), ("conv1", "dsconv3_half", "mbconv3", "mbconv1_double", "dsconv3_double", "identity")
    )
    assert isinstance(stacked(models.build(path), SMALL[0]), Stacked)
    assert stacked(models.build(tiny()), SMALL[0]) is None
    assert stacked(models.build(supernet.path_of(short_rnn(), supernet.dearest_path(short_rnn()))), (1, 1, 6)) is None
    small = supernet.path_of(short_rnn(), ("ligru", "linear", "qrnn", "causal_conv"))
    for spec, kind, shape in ((path, Stacked, SMALL[0]), (small, Mapped, (1, 1, 6))):
        module = models.build(spec).double()
        network = stacked(models.build(spec).double(), shape)
        assert isinstance(network, kind)
        states = [
            {n: t.double() for n, t in models.initial_state(spec, s).items() if t.is_floating_point()} for s in (1, 2)
        ]
        x = torch.stack([inputs(spec, 4, torch.float64), inputs(spec, 4, torch.float64).flip(0)], 1)
        network.bind({name: torch.stack([state[name] for state in states]) for name in states[0]}, 2)
        together = network(x)
        for client, state in enumerate(states):
            module.load_state_dict(state, strict=False)
            torch.testing.assert_close(together[client], module(x[:, client]), atol=1e-9, rtol=1e-9)


# ---- recurrent operators ----


def operator(name: str, in_width: int, width: int) -> torch.nn.Module:
    spec = short_rnn(embedding=in_width, hidden=width)
    module: Any = models.build(spec).double()
    layer: torch.nn.Module = getattr(module.layers[1], name)
    return layer


@pytest.mark.parametrize("name", ["lstm", "gru", "ligru", "qrnn", "linear", "causal_conv", "zero"])
def test_no_operator_looks_ahead(name: str) -> None:
    layer = operator(name, 3, 4)
    x = torch.randn(2, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    changed = x.clone()
    changed[:, 5:] = 7.0
    assert layer(x).shape == (2, 8, 4)
    assert torch.equal(layer(x)[:, :5], layer(changed)[:, :5])
    if name != "zero":
        assert not torch.equal(layer(x)[:, 5:], layer(changed)[:, 5:])


def test_recurrent_operators_by_hand() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ligru: Any = operator("ligru", 3, 4)
    state = torch.zeros(2, 4, dtype=torch.float64)
    for step in range(5):
        gates = x[:, step] @ ligru.input.weight.T + state @ ligru.hidden.weight.T
        update = gates[:, 4:].sigmoid()
        state = update * state + (1 - update) * gates[:, :4].tanh()
        torch.testing.assert_close(ligru(x)[:, step], state)
    qrnn: Any = operator("qrnn", 3, 4)
    memory = torch.zeros(2, 4, dtype=torch.float64)
    for step in range(5):
        values, forget, out = (x[:, step] @ qrnn.linear.weight.T + qrnn.linear.bias).chunk(3, 1)
        memory = forget.sigmoid() * values.tanh() + (1 - forget.sigmoid()) * memory
        torch.testing.assert_close(qrnn(x)[:, step], out.sigmoid() * memory)


def test_text_is_numbers_of_symbols_of_any_type() -> None:
    spec = supernet.path_of(short_rnn(), ("gru", "zero", "identity", "linear"))
    module = models.build(spec)
    x = inputs(spec, 3, torch.int64)
    logits = module(x)
    assert logits.shape == (3, 7)
    for other in (x.float(), x.half(), x.flatten(1)):
        assert torch.equal(module(other), logits)
    everywhere = models.build(spec.replace(readout="all"))
    everywhere.load_state_dict(module.state_dict())
    assert everywhere(x).shape == (3, 6, 7)
    torch.testing.assert_close(everywhere(x)[:, -1], logits)
    torch.testing.assert_close(everywhere.eval()(x), module.eval()(x))
    module(torch.full((1, 1, 1, 6), -3.0)), module(torch.full((1, 1, 1, 6), 900.0))  # what calibration makes up runs


# ---- specs ----


@pytest.mark.parametrize("name", SPACES)
def test_specs_survive_json(name: str) -> None:
    spec = space(name)
    again = ModelSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert again == spec and hash(again) == hash(spec)
    path = supernet.path_of(spec, supernet.cheapest_path(spec))
    assert ModelSpec.from_json(json.loads(json.dumps(path.to_json()))) == path
    assert models.searched(spec) and not models.searched(path)


def test_a_new_space_is_a_short_file(tmp_path: Path) -> None:
    fields = {"form": "cnn", "stem": [8, 1], "blocks": [1, 2], "operators": ["conv5", "mbconv3", "identity"],
              "reductions": [["pool", 12, 2], ["separable", 16, 2]]}  # fmt: skip
    file = tmp_path / "space.json"
    file.write_text(json.dumps({"family": "supernet", "fields": fields}))
    spec = models.configured_spec(str(file), (1, 28, 28), 10)
    assert spec["ops"] == (("conv5", "mbconv3", "identity"),) * 3
    module: Any = models.build(spec)
    module.choose(("conv5", "mbconv3", "identity"))
    assert module(torch.randn(2, 1, 28, 28)).shape == (2, 10)
    file.write_text(json.dumps(spec.to_json()))
    assert models.configured_spec(str(file), (1, 28, 28), 10) == spec
    file.write_text(json.dumps({"family": "supernet", "fields": {**fields, "operators": ["conv5", "mbcov3"]}}))
    with pytest.raises(UserError, match=r"space\.json .*unknown operator 'mbcov3'; did you mean 'mbconv3'"):
        models.configured_spec(str(file), (1, 28, 28), 10)
    text = {"form": "rnn", "symbols": 65, "stages": 1, "ops": [["gru", "lstm"], ["zero", "linear"]]}
    file.write_text(json.dumps({"family": "supernet", "fields": text}))
    assert models.configured_spec(str(file), (1, 1, 20), 65)["hidden"] == 128


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "cmm"}, "form is 'cmm'; it must be 'cnn' or 'rnn'"),
        ({"ops": (("conv1",),) * 5}, "ops are of 5 layers; this space has 6"),
        (
            {"ops": (("conv1",),) * 5 + (("mbcon3",),)},
            "layer 5 has an unknown operator 'mbcon3'; did you mean 'mbconv3'",
        ),
        ({"ops": (("lstm",),) * 6}, "unknown operator 'lstm'; there are "),
        ({"ops": (("conv1",),) * 5 + ((),)}, "layer 5 has the operators .*one or more"),
        ({"ops": (("conv1", "conv1"),) * 6}, "each once"),
        ({"blocks": (2, 2)}, "there are 3 reductions"),
        ({"blocks": (10**9, 2, 2)}, "has 1000000004 layers; 1000 is the most"),
        ({"blocks": (0, 0, 0)}, "one layer or more in all"),
        ({"blocks": (7, -1, 0)}, "before each reduction"),
        ({"reductions": (("convv", 8, 2),) * 3}, "no reduction 'convv'; did you mean 'conv'"),
        ({"reductions": (("conv", 8, 3),) * 3}, "stride is 3; it must be 1 or 2"),
        ({"stem": (16, 0)}, "stride is 0"),
        ({"stem": (1, 2)}, "widths are .*at least 2"),
        ({"input_shape": (3, 16, 16)}, "16x16 is too small"),
    ],
)
def test_a_space_of_convolutions_that_does_not_fit_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    spec = models.named_spec("cnn_tiny", *CIFAR)
    with pytest.raises(UserError, match=message) as error:
        models.build(spec.replace(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"stages": 1}, "ops are of 4 layers; this space has 2"),
        ({"readout": "first"}, "readout is 'first'"),
        ({"ops": (("zero",), ("lstm",)) * 2}, "layer 0 is the first of its stage and cannot be zero"),
        ({"ops": (("lstm",), ("identity",)) * 2}, "layer 1 makes 4 channels of 3 and cannot be an identity"),
        ({"ops": (("lstn",), ("gru",)) * 2}, "did you mean 'lstm'"),
    ],
)
def test_a_space_of_recurrent_layers_that_does_not_fit_is_one_sentence(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        models.cost(short_rnn().replace(**changes))
    assert "\n" not in str(error.value)


def test_what_cannot_be_restricted_and_narrowed_is_one_sentence() -> None:
    with pytest.raises(UserError, match="operators of 2 layers were asked for; this supernet has 6"):
        supernet.restricted(tiny(), [("conv1",)] * 2)
    with pytest.raises(UserError, match="layer 0 of this supernet has no operator 'conv2'; did you mean 'conv1'"):
        supernet.restricted(tiny(), [("conv2",)] * 6)
    with pytest.raises(UserError, match="has to keep one operator or more"):
        supernet.restricted(tiny(), [()] * 6)
    with pytest.raises(UserError, match="'supernet' cannot be made narrower"):
        models.check_resizable(tiny())


def test_odd_sides_are_halved_by_every_reduction() -> None:
    for kind in ("conv", "separable", "pool"):
        reductions = [(kind, 6, 2), (kind, 5, 2)]
        spec = supernet.make((1, 7, 9), 3, form="cnn", stem=(4, 1), blocks=(1, 1), operators=("conv1",),
                             reductions=reductions)  # fmt: skip
        module: Any = models.build(spec)
        last = module.reductions[1](module.reductions[0](module.stem(torch.randn(2, 1, 7, 9))))
        assert last.shape == (2, 5, 2, 3)


# ---- jobs ----


def test_a_job_of_any_method_trains_a_path_and_refuses_the_supernet(job_file: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model cnn_tiny is a supernet, and fedavg does not choose.*cnn_l_smallest"):
        fedscale_ext.run(job_file, model="cnn_tiny", rounds=1)
    types: dict[str, Any] = {"method": "moss", "moss.types": ["cnn_tiny", "lenet_6k"], "public_samples": 40}
    with pytest.raises(UserError, match="model cnn_tiny is a supernet, and moss does not choose"):
        fedscale_ext.run(job_file, model="lenet_6k", rounds=1, **types)
    with pytest.raises(UserError, match=r"^moss\.taps for cnn_tiny: a supernet has no features to tap"):
        fedscale_ext.run(job_file, model="lenet_6k", rounds=1, **types, **{"moss.taps": ["stem", "default"]})
    spec = models.named_spec("cnn_tiny", (1, 28, 28), 62)
    path = supernet.path_of(spec, ("conv1", "dsconv3", "identity", "mbconv3_half", "identity", "conv1"))
    (tmp_path / "path.json").write_text(json.dumps(path.to_json()))
    done = fedscale_ext.run(job_file, model=str(tmp_path / "path.json"), rounds=1)
    assert done["models"][0]["spec"] == path.to_json()
    with pytest.raises(UserError, match="'supernet' cannot be made narrower"):
        fedscale_ext.run(job_file, job_name="narrow", method="fjord", model=str(tmp_path / "path.json"), rounds=1)
