"""Subspaces and paths of a supernet on executors: one module for all of them, and nothing piles up."""

from typing import Any

import pytest
import torch
from methods.harness import equal

from fedscale_ext import models
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.family import path_of, restricted
from fedscale_ext.server.round.encoded_models import EncodedModels
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.tasks.workbench import Workbench
from fedscale_ext.transport import wire

SPEC = supernet.make(
    (1, 12, 12), 3, form="cnn", stem=(4, 1), blocks=(2,), reductions=(("pool", 6, 2),),
    operators=("conv1", "conv3", "dsconv3", "identity"),
)  # fmt: skip
STATE = models.initial_state(SPEC, 1)
SUBSPACES = [restricted(SPEC, ops) for ops in ((("conv1", "identity"), ("conv3", "dsconv3")), (("conv3",), ("conv1",)))]


def new_pool() -> ModelPool:
    pool = ModelPool()
    pool.add("whole", SPEC, STATE)
    for index, spec in enumerate(SUBSPACES):
        pool.add_part(f"part{index}", "whole", spec, {}, transient=index == 0)
    return pool


def bench() -> Workbench:
    return Workbench(torch.device("cpu"))


def keep(pool: ModelPool, on: Workbench, key: str, hosted: bool = True) -> None:
    model = pool[key]
    entry: dict[str, Any] = {"version": model.version, "spec": model.spec.to_json(), "transient": model.transient}
    if hosted and pool.host(key) is not model.spec:
        entry["host"] = pool.host(key).to_json()
    on.keep({"models": {key: entry}}, {key: EncodedModels(pool).section(key)})


@pytest.mark.parametrize("key", ["part0", "part1", "whole"])
def test_a_part_computes_in_the_supernets_module_what_it_computes_by_itself(key: str) -> None:
    pool, on = new_pool(), bench()
    for before in ("part1", "part0", key):  # whatever ran there earlier
        keep(pool, on, before)
        module = on.module(before)
    spec, other = pool[key].spec, bench()
    keep(pool, other, key, hosted=False)  # a module of its own
    alone: Any = other.module(key)
    assert module is on.resident("part1") and equal(module.state_dict(), alone.state_dict())
    assert (on.spec(key), on.host(key)) == (spec, SPEC)
    path = tuple(row[-1] for row in spec["ops"])
    for each in (module, alone):
        each.choose(path)
    x = torch.randn(4, 1, 12, 12)
    assert torch.equal(module(x), alone(x))
    if key == "part1":  # one operator per layer: chosen already
        assert torch.equal(on.module(key)(x), module(x))
    else:
        with pytest.raises(RuntimeError, match="choose a path"):
            on.module(key)(x)


def test_restoring_a_part_undoes_what_a_client_did_to_it() -> None:
    pool, on = new_pool(), bench()
    keep(pool, on, "part0")
    module = on.module("part0")
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.add_(1)
    assert equal(on.module("part0").state_dict(), dict(pool["part0"].state))


def test_executors_build_one_module_and_keep_no_transient_state() -> None:
    pool, on = new_pool(), bench()
    for number in range(20):
        ops = [tuple(row[number % 3 :]) for row in SPEC["ops"]]
        pool.add_part(f"client{number}", "whole", restricted(SPEC, ops), {}, transient=True)
        keep(pool, on, f"client{number}")
        on.module(f"client{number}")
    keep(pool, on, "part1")
    assert len(on._residents) == 1 and list(on._stored) == ["part1"]


def test_a_message_carries_the_subspace_alone_and_a_transient_one_each_time() -> None:
    pool = new_pool()
    encoded = EncodedModels(pool)
    for key, spec in zip(("part0", "part1"), SUBSPACES, strict=True):
        sent = wire.bytes_to_tensors(encoded.section(key))
        assert sent.keys() == set(models.layout(spec)) and all(torch.equal(sent[name], STATE[name]) for name in sent)
        assert sum(tensor.nbytes for tensor in sent.values()) == models.cost(spec).bytes < models.cost(SPEC).bytes
    assert list(encoded._sections) == ["part1"]
    assert encoded.section("part1") is encoded.section("part1")
    pool.drop_transient()
    assert [model.key for model in pool] == ["whole", "part1"]


def test_only_parts_of_supernets_have_another_host() -> None:
    pool = new_pool()
    pool.add("path", path_of(SPEC, ("conv1", "conv1")), {})
    assert pool.host("path") is pool["path"].spec and pool.host("whole") is SPEC and pool.host("part1") is SPEC


def test_another_model_in_the_place_of_a_part_follows_nothing_and_is_sent_anew() -> None:
    spec = models.named_spec("cnn_tiny", (3, 32, 32), 10)
    new_pool = ModelPool()
    new_pool.add("whole", spec, models.initial_state(spec, 1))
    old = new_pool.add_part("tier", "whole", supernet.path_of(spec, ["conv1"] * 6), {})
    other = supernet.path_of(spec, ["identity"] * 6)
    new = new_pool.replace("tier", other, models.initial_state(other, 2))
    assert new_pool["tier"] is new and new.version == old.version + 1 and new.part is None
    state = new.state
    new_pool.update("whole", models.initial_state(spec, 3))
    assert equal(new_pool["tier"].state, state) and new_pool.host("tier") == other and len(new_pool) == 2
