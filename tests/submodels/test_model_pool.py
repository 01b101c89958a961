from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.submodels import narrowed, window
from fedscale_ext.submodels.model_pool import ModelPool


def test_a_pool_comes_back_with_its_parts_their_states_and_versions() -> None:
    spec = models.named_spec("cnn_small", (1, 8, 8), 4)
    pool, other = ModelPool(), ModelPool()
    pool.add("whole", spec, models.initial_state(spec, 1))
    pool.add_part("half", "whole", narrowed(spec, 0.5), window(spec, 0.5))
    pool.update("whole", models.initial_state(spec, 2))
    pool.amend("half", {name: tensor + 1 for name, tensor in pool["half"].state.items()})  # unlike its whole's
    other.add("left over", spec, {})
    other.load_state(*pool.state())
    assert [model.key for model in other] == ["whole", "half"]
    for model in pool:
        again = other[model.key]
        assert (again.spec, again.version, again.cost) == (model.spec, model.version, model.cost)
        assert again.state.keys() == model.state.keys()
        assert all(torch.equal(tensor, model.state[name]) for name, tensor in again.state.items())
    assert other["half"].part is not None and other["half"].part.reference == "whole"


def test_all_names_of_a_tensor_have_what_the_server_made_of_its_first() -> None:
    spec = models.configured_spec("tests.models.channels.networks:Tied", (1, 8, 8), 3)
    pool = ModelPool()
    start = pool.add("whole", spec, models.initial_state(spec, 1)).state
    pool.add_part("half", "whole", narrowed(spec, 0.5), window(spec, 0.5))
    pool.update(
        "whole", {n: tensor + 1 if n in models.parameter_names(spec) else tensor for n, tensor in start.items()}
    )
    for key in ("whole", "half"):
        module, state = models.build(pool[key].spec), pool[key].state
        module.load_state_dict(state)
        assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert torch.equal(pool["whole"].state["two.weight"], start["one.weight"] + 1)


WEIGHT = "linear2.weight"  # [4, 28] in this model


def without_weight(state: State) -> State:
    return {name: tensor for name, tensor in state.items() if name != WEIGHT}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (without_weight, f"lacks {WEIGHT!r} of model 'whole'; pass all of its tensors"),
        (lambda state: {**state, "linear2.wieght": state[WEIGHT]}, "has 'linear2.wieght', which model 'whole' lacks; "
         f"did you mean {WEIGHT!r}?"),
        (lambda state: {**state, WEIGHT: state[WEIGHT][:, :1]}, f"has {WEIGHT!r} with shape [4, 1], and model 'whole' "
         "has it with shape [4, 28]"),
        (lambda state: {**state, WEIGHT: state[WEIGHT].double()}, f"has {WEIGHT!r} in torch.float64, and model 'whole' "
         "has it in torch.float32; convert it"),
        (lambda state: {**state, WEIGHT: state[WEIGHT].numpy()}, f"has a value of type ndarray as {WEIGHT!r} of model "
         "'whole', and a tensor belongs there"),
        (lambda _: None, "is a value of type NoneType; model 'whole' takes a dict of tensors"),
    ],
    ids=["missing", "unknown", "shape", "dtype", "array", "none"],
)  # fmt: skip
def test_a_state_that_does_not_fit_its_model(change: Callable[[State], Any], fault: str) -> None:
    spec = models.named_spec("cnn_small", (1, 8, 8), 4)
    pool = ModelPool("mine")
    start = pool.add("whole", spec, models.initial_state(spec, 1)).state
    with pytest.raises(UserError) as error:
        pool.update("whole", change(start))
    assert str(error.value) == f"the state that method mine passes to pool.update {fault}"
    assert pool["whole"].state is start
    assert pool["whole"].version == 0
