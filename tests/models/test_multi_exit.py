"""Networks with exits: sizes, prefixes, what training and evaluation give, and what cannot be built."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.submodels import count_mean, narrowed

from .architectures import CLASSES, multi_exit_spec

calm = settings(deadline=None, derandomize=True, max_examples=30)
HAR, FASHION = ((9, 1, 128), 6), ((1, 28, 28), 10)


def network(spec: ModelSpec, state: dict[str, torch.Tensor], train: bool) -> torch.nn.Module:
    module = models.build(spec).double()
    module.load_state_dict(state)
    return module.train(train)


def states(spec: ModelSpec, seed: int = 0) -> dict[str, torch.Tensor]:
    """As after training: statistics that are not what they were at first."""
    module = models.build(spec).double()
    module.load_state_dict(models.initial_state(spec, seed))
    module(inputs(spec, 20, seed))
    return module.state_dict()


def inputs(spec: ModelSpec, batch: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, *spec["input_shape"], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "inputs", "parameters"),
    [  # the first three as in HypeMeFed's public code
        ("vgg_svhn", ((3, 32, 32), 10), 1_245_886),
        ("vgg_stl10", ((3, 96, 96), 10), 5_979_486),
        ("vgg_unimib", ((1, 18, 25), 8), 4_729_048),
        ("vgg_small", HAR, 51_618),
        ("vgg_small", FASHION, 120_142),
        ("resnet18", ((3, 32, 32), 100), 11_220_132 + 129 * 100 + 257 * 100),
        ("cnn3", FASHION, 112_382),
        ("cnn10", FASHION, 321_876),
    ],
)
def test_parameters(name: str, inputs: tuple[tuple[int, int, int], int], parameters: int) -> None:
    spec = models.named_spec(f"multi_exit_{name}", *inputs)
    assert models.cost(spec).parameters == parameters
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize("name", ["resnet18", "resnet18_4"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 64, 64), (3, 128, 128)])
def test_a_resnet_with_one_exit_costs_what_the_plain_one_costs(name: str, shape: tuple[int, int, int]) -> None:
    ours = models.cost(models.named_spec(f"single_exit_{name}", shape, 10))
    assert ours == models.cost(models.named_spec("resnet18", shape, 10))


def test_the_cost_of_each_prefix_by_hand() -> None:
    spec = models.named_spec("multi_exit_vgg_small", *HAR)
    macs = 3 * 9 * 16 * 128
    for number, (width, length) in enumerate([(32, 64), (64, 32), (128, 16)], 1):
        macs += 3 * (width // 2) * width * length + 6 * width * (length // 2)
        cost = models.cost(multi_exit.prefix(spec, number))
        assert cost.forward_macs == macs
        assert cost.training_macs == 3 * macs - 3 * 9 * 16 * 128
        state = models.initial_state(multi_exit.prefix(spec, number), 1)
        assert cost.bytes == sum(tensor.nbytes for tensor in state.values())
    assert state["block1.conv1.weight"].shape == (32, 16, 1, 3)  # along time only


@given(spec=multi_exit_spec(), seed=st.integers(0, 1000))
@calm
def test_a_prefix_is_the_whole_restricted_to_its_names(spec: ModelSpec, seed: int) -> None:
    whole_spec = multi_exit.prefix(spec, multi_exit.num_exits(spec)).replace(heads="all", predict="last")
    whole, x = states(whole_spec, seed), inputs(whole_spec, 5, seed)
    logits = network(whole_spec, whole, train=True)(x)
    assert logits.shape == (5, multi_exit.num_exits(spec), CLASSES)
    names = set()
    for exits in range(1, multi_exit.num_exits(spec) + 1):
        for heads in ("last", "all"):
            small = multi_exit.prefix(whole_spec, exits).replace(heads=heads)
            state = {name: whole[name] for name in models.layout(small)}
            held = {n for n, tensor in models.build(small).state_dict().items() if tensor.shape == whole[n].shape}
            assert held == state.keys()
            assert models.layout(small) == {name: models.layout(whole_spec)[name] for name in state}
            alone = network(small, state, train=True)(x)
            torch.testing.assert_close(alone, logits[:, exits - alone.shape[1] : exits], atol=1e-12, rtol=1e-12)
            assert alone.shape[1] == (exits if heads == "all" else 1)
        assert names < state.keys()
        assert {name.partition(".")[0] for name in state.keys() - names} >= {f"exit{exits}"}
        names = set(state)
    assert names == whole.keys()


@given(spec=multi_exit_spec(), seed=st.integers(0, 1000))
@calm
def test_evaluation_gives_the_deepest_exit_or_the_mean_of_all(spec: ModelSpec, seed: int) -> None:
    spec = spec.replace(predict="last")
    whole, x = states(spec, seed), inputs(spec, 3, seed)
    last = network(spec, whole, train=False)(x)
    exits = spec["exits"]
    each = []
    for number in range(1, exits + 1) if spec["heads"] == "all" else [exits]:
        small = multi_exit.prefix(spec, number)
        each.append(network(small, {name: whole[name] for name in models.layout(small)}, train=False)(x))
    torch.testing.assert_close(each[-1], last, atol=0, rtol=0)
    mean = network(spec.replace(predict="mean"), whole, train=False)(x)
    torch.testing.assert_close(
        mean.softmax(1), torch.stack([logits.softmax(1) for logits in each]).mean(0), atol=1e-12, rtol=0
    )
    if len(each) > 1:
        torch.testing.assert_close(mean.exp().sum(1), torch.ones(3, dtype=torch.float64))


@given(spec=multi_exit_spec(), seed=st.integers(0, 1000), rate=st.sampled_from([0.3, 0.5, 1.0]))
@calm
def test_narrowing_and_cutting_commute(spec: ModelSpec, seed: int, rate: float) -> None:
    one, other = multi_exit.prefix(narrowed(spec, rate), 1), narrowed(multi_exit.prefix(spec, 1), rate)
    first, second = (models.build(each).state_dict() for each in (one, other))
    assert {name: tensor.shape for name, tensor in first.items()} == {n: tensor.shape for n, tensor in second.items()}


def test_what_no_prefix_holds_keeps_its_value() -> None:
    spec = models.named_spec("multi_exit_vgg_small", *HAR)
    whole = models.initial_state(spec, 1)
    updates = []
    for exits, weight, seed in ((1, 3.0, 2), (2, 1.0, 3)):
        small = multi_exit.prefix(spec, exits)
        updates.append((models.initial_state(small, seed), dict.fromkeys(models.layout(small)), weight))
    mean = count_mean(whole, updates)
    for name, tensor in mean.items():
        holders = [(state[name], weight) for state, covered, weight in updates if name in covered]
        if not holders:
            assert torch.equal(tensor, whole[name]) and name.startswith(("block3", "exit3"))
        elif tensor.is_floating_point():
            expected = sum(weight * value.double() for value, weight in holders) / sum(weight for _, weight in holders)
            torch.testing.assert_close(tensor, expected.float())


@pytest.mark.parametrize("name", [name.removeprefix("multi_exit_") for name in multi_exit.NAMED if "multi" in name])
def test_every_named_network_has_a_form_with_its_last_and_one_up_to_its_first_exit_only(name: str) -> None:
    shape = (3, 96, 96) if name == "vgg_stl10" else (1, 28, 28)
    spec, single = (models.named_spec(f"{kind}_exit_{name}", shape, 5) for kind in ("multi", "single"))
    assert single == spec.replace(heads="last")
    assert models.named_spec(f"first_exit_{name}", shape, 5) == multi_exit.prefix(spec, 1)
    assert {n for n in models.layout(single) if n.startswith("exit")} == {
        f"exit{spec['exits']}.linear.{part}" for part in ("weight", "bias")
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exits": 4}, "the vgg has 3 exits; a network up to exit 4 cannot be cut from it"),
        ({"exits": 0}, "up to exit 0"),
        ({"positions": (1, 2)}, r"rise from 1 or more to the last block, 3"),
        ({"positions": (2, 2, 3)}, "rise from 1"),
        ({"positions": (0, 3)}, "rise from 1"),
        ({"positions": ()}, "rise from 1"),
        ({"widths": ((4,), (), (4,), (4,))}, "every stage needs 1 or more"),
        ({"backbone": "resnet18"}, "every stage needs 2 or more"),
        ({"pools": (True,)}, "each of 4 stages needs one"),
        ({"dropout": 1.0}, "below 1"),
        ({"heads": "first"}, "must be 'all' or 'last'"),
        ({"predict": "vote"}, "must be 'last' or 'mean'"),
        ({"backbone": "vgg16"}, "must be 'vgg' or 'resnet18' or 'cnn' or 'mlp'"),
        ({"input_shape": (1, 8, 8)}, "block3 of this vgg would see one position only.* 8x8 is too small"),
        ({"input_shape": (1, 1, 8)}, "1x8 is too small"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(changes: dict[str, object], message: str) -> None:
    spec = models.named_spec("multi_exit_vgg_small", *FASHION)
    with pytest.raises(UserError, match=message) as error:
        models.build(spec.replace(**changes))
    assert "\n" not in str(error.value)


def test_exits_beyond_the_depth_and_small_inputs_are_refused_early() -> None:
    with pytest.raises(UserError, match="3 exits; a network up to exit 7"):
        multi_exit.prefix(models.named_spec("multi_exit_vgg_small", *FASHION), 7)
    with pytest.raises(UserError, match="8x9 is too small"):
        models.named_spec("multi_exit_vgg_small", (1, 8, 9), 5)
    models.build(models.named_spec("multi_exit_vgg_small", (1, 9, 16), 5))  # 9x16, 4x8, 2x4, 1x2
    with pytest.raises(UserError, match="8x8 is too small"):
        models.named_spec("multi_exit_resnet18", (1, 8, 8), 5)
