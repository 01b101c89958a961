"""Supernets that run all of their operators at once."""

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.models.counting import count
from fedscale_ext.models.supernet.family import Searchable, cheapest_path, mixed, path_of, tables

SHAPE = (1, 20, 20)
SPACE = models.named_spec("cnn_tiny", SHAPE, 4)


def network(how: str, space: models.ModelSpec = SPACE) -> tuple[models.ModelSpec, torch.nn.Module]:
    spec = mixed(space, how)
    module = models.build(spec)
    module.load_state_dict(models.initial_state(spec, 1))
    return spec, module


@pytest.mark.parametrize("how", ["alphas", "equal"])
@pytest.mark.parametrize("space", [SPACE, models.named_spec("rnn", (1, 1, 5), 90)])
def test_names_sizes_and_macs_are_those_of_what_runs(how: str, space: models.ModelSpec) -> None:
    spec, module = network(how, space)
    state, cost = module.state_dict(), models.cost(spec)
    assert {name: len(axes) for name, axes in models.layout(spec).items()} == {n: t.dim() for n, t in state.items()}
    assert list(models.layout(spec)) == list(state)
    assert cost.parameters == sum(parameter.numel() for parameter in module.parameters())
    assert cost.bytes == sum(tensor.nbytes for tensor in state.values())
    assert not models.searched(spec) and mixed(spec, None) == space
    table = tables(spec)
    assert cost.forward_macs == table.fixed_macs + table.macs[table.held].sum() > models.cost(space).forward_macs
    if space is SPACE:
        assert count(module.eval(), torch.zeros(2, *SHAPE))[0] == cost.forward_macs


def test_one_alpha_alone_is_a_path_and_has_gradients() -> None:
    spec, module = network("alphas")
    path = cheapest_path(spec)
    alone = models.build(path_of(mixed(spec, None), path))
    alone.load_state_dict({name: module.state_dict()[name] for name in alone.state_dict()})
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        for layer, name in enumerate(path):
            parameters[f"alphas.{layer}"][spec["ops"][layer].index(name)] = 1e3
    x = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(module.eval()(x), alone.eval()(x))
    fresh = network("alphas")[1]
    fresh(x).square().sum().backward()
    assert all(bool(p.grad.abs().sum() > 0) for name, p in fresh.named_parameters() if name.startswith("alphas."))


def test_equal_shares_are_of_what_is_held() -> None:
    spec, module = network("equal")
    assert isinstance(module, Searchable)
    x = torch.randn(3, *SHAPE, generator=torch.Generator().manual_seed(1))
    path = cheapest_path(spec)
    module.eval().hold([(name,) for name in path])
    held = module(x)
    alone = models.build(path_of(mixed(spec, None), path))
    alone.load_state_dict({name: module.state_dict()[name] for name in alone.state_dict()})
    torch.testing.assert_close(held, alone.eval()(x))
    two = [spec["ops"][0][:2], *((name,) for name in path[1:])]
    module.hold(two)
    stem = module.stem(x)  # type: ignore[operator]
    one, other = (module.layers[0].run(name, stem) for name in two[0])  # type: ignore[operator]
    torch.testing.assert_close(module._run(0, stem), (one + other) / 2)


def test_a_mixture_that_there_is_not_and_alphas_of_a_part() -> None:
    with pytest.raises(UserError, match="mixed is 'both'; it must be 'alphas' or 'equal'"):
        models.build(mixed(SPACE, "both"))
    spec, module = network("alphas")
    assert isinstance(module, Searchable)
    module.hold([held[:2] for held in spec["ops"]])
    with pytest.raises(RuntimeError, match="all of its operators"):
        module(torch.zeros(2, *SHAPE))
