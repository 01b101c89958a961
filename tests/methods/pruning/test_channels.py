"""Channels that clients keep: masks, bytes and strengths are those of the smaller network that they make."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.types import IndexMap
from fedscale_ext.methods.pruning import channels
from fedscale_ext.submodels import extract, narrowed, rate_of

SHAPE, CLASSES = (3, 8, 8), 4
NAMES = ("lenet_6k", "nasbench201_base", "single_exit_mlp")
FIXED = settings(deadline=None, derandomize=True, max_examples=6)
State = dict[str, torch.Tensor]


def spec_of(name: str) -> models.ModelSpec:
    return models.named_spec(name, SHAPE, CLASSES)


def drawn(spec: models.ModelSpec, seed: int, clients: int = 1) -> channels.Active:
    """[clients, C] by group, at least one channel of each."""
    generator = torch.Generator().manual_seed(seed)
    active = {g: torch.rand(clients, len(one), generator=generator) < 0.6 for g, one in channels.whole(spec).items()}
    for one in active.values():
        one[:, 0] = True
    return active


def of(active: channels.Active, client: int) -> channels.Active:
    return {group: one[client] for group, one in active.items()}


def index(active: channels.Active) -> IndexMap:
    return {group: one.nonzero().flatten() for group, one in active.items()}


@FIXED
@given(st.sampled_from(NAMES), st.integers(0, 99))
def test_zeros_make_the_function_of_the_smaller_network(name: str, seed: int) -> None:
    spec = spec_of(name)
    active, layout = of(drawn(spec, seed), 0), models.layout(spec)
    state = {n: t.double() if t.is_floating_point() else t for n, t in models.initial_state(spec, seed).items()}
    for key, tensor in state.items():
        if key.endswith(("bias", "running_mean")):
            tensor += 0.3  # whatever a dropped channel has must not count
    small = models.build(models.resized(spec, channels.widths(active))).double().eval()
    small.load_state_dict(extract(state, layout, index(active)))
    whole = models.build(spec).double().eval()
    names = models.parameter_names(spec)
    masks = channels.masks(layout, active, {key: state[key] for key in names})
    whole.load_state_dict({key: torch.where(masks[key], t, 0.0) if key in masks else t for key, t in state.items()})
    x = torch.randn(3, *SHAPE, dtype=torch.float64)
    torch.testing.assert_close(whole(x), small(x), atol=1e-9, rtol=0)


@FIXED
@given(st.sampled_from(NAMES), st.integers(0, 99), st.integers(1, 4))
def test_bytes_are_those_of_what_masks_keep(name: str, seed: int, clients: int) -> None:
    spec = spec_of(name)
    active, layout, state = drawn(spec, seed, clients), models.layout(spec), models.initial_state(spec, 1)
    every, alone = channels.held_bytes(layout, active, state)
    masks = [channels.masks(layout, of(active, client), state) for client in range(clients)]
    for client in range(clients):
        holders = {key: sum(mask[key].long() for mask in masks) for key in state}
        assert int(every[client]) == sum(int(masks[client][key].sum()) * t.itemsize for key, t in state.items())
        once = {key: masks[client][key] & (holders[key] == 1) for key in state}
        assert int(alone[client]) == sum(int(once[key].sum()) * t.itemsize for key, t in state.items())
        assert int(every[client]) == models.cost(models.resized(spec, channels.widths(of(active, client)))).bytes


@FIXED
@given(st.sampled_from(NAMES), st.integers(0, 99))
def test_gates_scale_what_is_read_of_a_channel(name: str, seed: int) -> None:
    """A gate of zero is a channel that is not there; gates of one change nothing."""
    spec = spec_of(name)
    active, layout = of(drawn(spec, seed), 0), models.layout(spec)
    state = {n: t.double() if t.is_floating_point() else t for n, t in models.initial_state(spec, seed).items()}
    names = models.parameter_names(spec)
    x = torch.randn(3, *SHAPE, dtype=torch.float64)

    def output(gates: State) -> torch.Tensor:
        module = models.build(spec).double().eval()
        module.load_state_dict({**state, **channels.gated(layout, gates, {key: state[key] for key in names})})
        return module(x).detach()

    small = models.build(models.resized(spec, channels.widths(active))).double().eval()
    small.load_state_dict(extract(state, layout, index(active)))
    torch.testing.assert_close(output({g: one.double() for g, one in active.items()}), small(x), atol=1e-9, rtol=0)
    ones = {group: torch.ones(len(one), dtype=torch.float64) for group, one in active.items()}
    module = models.build(spec).double().eval()
    module.load_state_dict(state)
    assert torch.equal(output(ones), module(x))


def test_the_strongest_are_those_whose_weights_sum_highest_of_equal_ones_the_first() -> None:
    layout = {"a": (models.Axis("g", "out"), models.Axis("input", "in")), "b": (models.Axis("g", "out"),)}
    weights = {"a": torch.tensor([[1.0, -2.0], [0.5, 0.0], [3.0, 0.0], [0.0, 0.5]]), "b": torch.full((4,), 9.0)}
    scores = channels.strength(layout, weights)
    assert scores["g"].tolist() == [3.0, 0.5, 3.0, 0.5]  # biases do not count
    assert channels.strongest(scores, {"g": 3})["g"].tolist() == [True, True, True, False]
    among = {"g": torch.tensor([False, True, True, True])}
    assert channels.strongest(scores, {"g": 2}, among)["g"].tolist() == [False, True, True, False]


@pytest.mark.parametrize("share", [1.0, 0.4, 0.05])
def test_a_rate_has_the_parameters_that_are_asked_for(share: float) -> None:
    spec = models.named_spec("resnet18", (3, 32, 32), 10)
    every = models.cost(spec).parameters
    parameters = models.cost(narrowed(spec, rate_of(spec, share * every))).parameters
    assert parameters == pytest.approx(share * every, rel=0.02)
    assert rate_of(spec, share * every) == pytest.approx({1.0: 1.0, 0.4: 0.63, 0.05: 0.22}[share], abs=0.01)
