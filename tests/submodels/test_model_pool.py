import torch

from fedscale_ext import models
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
