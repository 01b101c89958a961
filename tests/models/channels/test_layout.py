"""Channel groups that are found agree with those written by hand, and cuts by them compute what is left."""

import warnings
from functools import partial

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import Axis, Layout, ModelSpec
from fedscale_ext.models.channels import channel_layout
from fedscale_ext.models.resizing import FIXED
from fedscale_ext.submodels import extract, narrowed, window
from tests.models import architectures
from tests.models.channels.networks import MULTIPLIED, PADDED, Random

FOREIGN = {
    "torchvision:resnet18": (3, 32, 32),
    "torchvision:mobilenet_v3_small": (1, 33, 40),
    "torchvision:shufflenet_v2_x0_5": (3, 64, 64),
    "timm:mobilenetv3_small_050": (3, 32, 32),
    "timm:resnext26ts": (3, 32, 32),
    "tests.models.channels.networks:Tied": (3, 6, 7),
}


def built_layout(spec: ModelSpec) -> Layout:
    return channel_layout(models.build(spec), spec["input_shape"])


def unlike(one: Layout, other: Layout, spec: ModelSpec) -> list[str]:
    """Axes of ``one`` that are not those of ``other``, whose groups may be wider; a single channel is never cut."""
    of: dict[str, str] = {}
    shapes = {name: tensor.shape for name, tensor in models.initial_state(spec, 1).items()}
    assert one.keys() == other.keys() == shapes.keys()
    return [
        f"{name}: {mine} and {theirs}"
        for name, shape in shapes.items()
        for length, mine, theirs in zip(shape, one[name], other[name], strict=True)
        if mine is not None and length > mine.repeat
        and (theirs is None or (mine.role, mine.repeat, of.setdefault(mine.group, theirs.group))
             != (theirs.role, theirs.repeat, theirs.group))
    ]  # fmt: skip


@pytest.mark.parametrize("family", ["cnn", "resnet_spec", "mobilenetv2_spec", "mobilenetv3_spec", "multi_exit_spec"])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_groups_are_those_written_by_hand(family: str, data: st.DataObject) -> None:
    spec = data.draw(getattr(architectures, family)())
    assume(not dict(spec.fields).get("dense"))  # there, channels still go together that no operation joins any more
    assert not unlike(built_layout(spec), models.layout(spec), spec)
    assert not unlike(models.layout(spec), built_layout(spec), spec)


def test_groups_are_parts_of_cells_that_fedtrans_widens() -> None:
    spec = models.named_spec("nasbench201_base", (3, 16, 16), 10)
    assert not unlike(built_layout(spec), models.layout(spec), spec)


def cut_by_hand(spec: ModelSpec, rate: float) -> dict[str, torch.Tensor]:
    """The whole network's state where nothing reads the channels that a cut leaves out."""
    state = {name: tensor.clone() for name, tensor in models.initial_state(spec, 1).items()}
    widths = models.group_widths(narrowed(spec, rate))
    for name, axes in models.layout(spec).items():
        for dim, axis in enumerate(axes):
            if axis is not None and axis.role == "in" and axis.group not in FIXED:
                state[name].movedim(dim, 0)[widths[axis.group] * axis.repeat :] = 0
    return state


def check_cut(spec: ModelSpec, rate: float) -> None:
    part, whole = models.build(narrowed(spec, rate)).double().eval(), models.build(spec).double().eval()
    part.load_state_dict(extract(models.initial_state(spec, 1), models.layout(spec), window(spec, rate)))
    whole.load_state_dict(cut_by_hand(spec, rate))
    x = torch.randn(3, *spec["input_shape"], dtype=torch.float64)
    assert torch.allclose(part(x), whole(x), atol=1e-9)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_cut_of_a_foreign_network_computes_what_is_left(name: str) -> None:
    spec = models.named_spec(name, FOREIGN[name], 7)
    assert len(models.group_widths(spec)) > len(FIXED)
    assert {n: len(axes) for n, axes in models.layout(spec).items()} == {
        n: tensor.dim() for n, tensor in models.initial_state(spec, 1).items()
    }
    check_cut(spec, 0.5)
    assert models.cost(narrowed(spec, 0.5)).forward_macs < models.cost(spec).forward_macs


ENLARGED = [*MULTIPLIED, *PADDED, "padded shortcut", "spread"]
STEPS = ["conv", "depthwise", "several", "norm", "shortcut", "gate", "concatenate", "shuffle", "last", "slopes",
         "one slope", *ENLARGED]  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(1, 6)), min_size=1, max_size=6), st.floats(0.1, 0.9))
def test_a_cut_of_any_network_computes_what_is_left(steps: list[tuple[str, int]], rate: float) -> None:
    names, widths = zip(("conv", 4), *steps, strict=True)
    model = f"tests.models.channels.networks:Random(steps={list(names)}, widths={list(widths)})"
    check_cut(models.named_spec(model, (2, 6, 7), 3), rate)


@pytest.mark.parametrize("behind", [(), ("conv",), ("depthwise", "norm", "conv"), ("shortcut",), ("gate", "several")])
@pytest.mark.parametrize("step", [*ENLARGED, "one slope", "slopes"])
def test_padded_and_repeated_channels_are_not_cut_wrongly(step: str, behind: tuple[str, ...]) -> None:
    names = ["conv", "conv", step, *behind]
    model = f"tests.models.channels.networks:Random(steps={names}, widths={[6, 4, 7, 5, 5, 5][: len(names)]})"
    spec = models.named_spec(model, (2, 6, 7), 3)
    for rate in (0.3, 0.5, 0.7):
        check_cut(spec, rate)


@pytest.mark.parametrize("step", [*PADDED, "padded shortcut", "repeat", "interleave", "twice", "copies"])
def test_padded_and_repeated_channels_stay_whole(step: str) -> None:
    layout = channel_layout(Random(3, 2, ("conv", step, "conv"), (4, 3, 5)), (2, 6, 6))
    assert layout["layers.0.weight"][0] is None and layout["layers.2.weight"][1] is None
    assert layout["layers.2.weight"][0] == Axis("layers.2", "out")  # what lies behind is cut


def axes_of(module: nn.Module, name: str, shape: tuple[int, int, int] = (2, 6, 6)) -> tuple[Axis | None, ...]:
    return channel_layout(module, shape)[name]


def test_added_channels_are_one_group_and_a_flattened_map_repeats() -> None:
    module = Random(3, 2, ("conv", "shortcut", "norm"), (4, 5, 1))
    layout = channel_layout(module, (2, 6, 6))
    assert layout["layers.0.weight"] == (Axis("layers.0", "out"), Axis("input", "in"), None, None)
    assert layout["layers.1.2.weight"][0] == Axis("layers.0", "out")
    assert layout["layers.1.0.weight"][:2] == (Axis("layers.1.0", "out"), Axis("layers.0", "in"))
    assert layout["layers.2.running_var"] == (Axis("layers.0", "out"),) == layout["scale"][:1]
    assert layout["head.weight"] == (Axis("classes", "out"), Axis("layers.0", "in", 4))


@pytest.mark.parametrize("step", ["concatenate", "shuffle"])
def test_channels_that_meet_others_are_never_cut(step: str) -> None:
    assert axes_of(Random(3, 2, ("conv", step), (4, 3)), "layers.0.weight")[0] is None


def test_an_unknown_operation_fixes_what_it_reads() -> None:
    class Sorted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(2, 4, 1), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.conv(x).mean((2, 3)).sort(1).values)

    assert axes_of(Sorted(), "conv.weight")[0] is None
    assert axes_of(Sorted(), "head.weight") == (Axis("classes", "out"), None)


@pytest.mark.parametrize("fixed_first", [True, False])
def test_channels_that_are_added_to_fixed_ones_are_fixed(fixed_first: bool) -> None:
    class SortedAndFree(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fixed, self.free, self.head = nn.Conv2d(2, 4, 1), nn.Conv2d(2, 4, 1), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            fixed, free = self.fixed(x), self.free(x)
            largest = fixed.sort(1).values[:, -1:]
            return self.head((fixed + free if fixed_first else free + fixed).mul(largest).mean((2, 3)))

    layout = channel_layout(SortedAndFree(), (2, 6, 6))
    assert layout["fixed.weight"][0] is layout["free.weight"][0] is layout["head.weight"][1] is None
    assert layout["free.bias"] == (None,)


def test_a_pass_that_depends_on_values_is_told() -> None:
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(72, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.flatten(1)) if x.sum() > 0 else self.head(-x.flatten(1))

    with pytest.raises(UserError, match=r"torch\.export cannot follow the forward pass of Chooses"):
        channel_layout(Chooses(), (2, 6, 6))


def test_finding_channels_draws_nothing() -> None:
    spec = models.named_spec("tests.models.channels.networks:Net(width=5)", (1, 8, 8), 3)
    before = torch.random.get_rng_state()
    with warnings.catch_warnings(action="error"):
        models.layout(spec)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_same_network_always_has_the_same_layout() -> None:
    build = partial(models.named_spec, "torchvision:squeezenet1_1", (3, 64, 64), 5)
    assert built_layout(build()) == built_layout(build())
