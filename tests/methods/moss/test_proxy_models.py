"""The server's step: equal to the plain loop, its variants, its state, whatever the threads."""

from dataclasses import replace

import pytest
import torch

from evals.speed import moss_loop
from fedscale_ext import models
from fedscale_ext.errors import UserError
from fedscale_ext.methods.moss.knowledge_transfer import Options
from fedscale_ext.methods.moss.proxy_models import PairwiseModels, ProxyModels, Type
from tests.methods.moss.toy import OPTIONS, SPECS, double, public, start, types

MAPS = ("resnet", "mobilenet", "cnn")
EVERY = (*MAPS, "vit", "mlp")
SHORT = replace(OPTIONS, epochs=1, batch_size=5)


def step(server, names, round=1, seed=1):
    return server.step(round, {name: start(name, seed) for name in names}, dict.fromkeys(names, 10), public())


def as_double(server):
    server.proxy = double(server.proxy)
    for wire in server.wires.values():
        wire._to(torch.float64)
    return server


def equal(one, other):
    return all(torch.equal(one[key][name], other[key][name]) for key in one for name in one[key])


@pytest.mark.parametrize("same", ["copy", "wire"])
def test_a_step_equals_the_plain_loop(same):
    server = as_double(ProxyModels(types(*MAPS), OPTIONS, 4, same_arch_transfer=same, threads=2))
    assert len(server.wires) == (4 if same == "copy" else 6)
    expected = moss_loop.server_step(server, 1, {name: start(name) for name in MAPS}, dict.fromkeys(MAPS, 10), public())
    found = step(server, MAPS)
    for key in MAPS:
        for name in found.models[key]:
            torch.testing.assert_close(found.models[key][name], expected[key][name], rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize(("kind", "names"), [(ProxyModels, EVERY), (PairwiseModels, ("cnn", "mlp", "resnet"))])
def test_any_types_meet_and_neither_threads_nor_restarts_matter(kind, names):
    one, two, late = (kind(types(*names), SHORT, 4, threads=threads) for threads in (1, 3, 2))
    first = step(one, names)
    assert first.models.keys() == set(names) and equal(first.models, step(two, names).models)
    assert all(0 <= each <= 1 for each in first.fidelity.values())
    tensors, data = two.state()
    late.load_state({name: each.clone() for name, each in tensors.items()}, data)
    again, resumed = step(one, names, round=2), step(late, names, round=2)
    assert equal(again.models, resumed.models) and again.reports == resumed.reports
    assert not equal(first.models, again.models)
    assert all(torch.equal(each, late.state()[0][name]) for name, each in one.state()[0].items())


def test_a_type_of_the_proxys_architecture_is_copied():
    server = ProxyModels(types(*MAPS), SHORT, 4)
    large = max(MAPS, key=lambda name: models.cost(SPECS[name]).parameters)
    assert server.architecture.spec == SPECS[large]
    found = step(server, MAPS)
    assert found.fidelity[large] == 1.0 and equal({large: found.models[large]}, {large: server.proxy})
    only = step(server, (large,), round=2)
    assert equal(only.models, {large: start(large)}) and not only.reports


def test_types_that_did_not_take_part_have_no_part():
    server = ProxyModels(types(*MAPS), SHORT, 4)
    before = {name: each.clone() for name, each in server.state()[0].items() if ".cnn/" in name}
    found = step(server, ("resnet", "mobilenet"))
    assert found.models.keys() == found.fidelity.keys() == {"resnet", "mobilenet"}
    assert before and all(torch.equal(each, server.state()[0][name]) for name, each in before.items())


def test_without_file_samples_count():
    found = {}
    for aggregation in ("file", "fedavg"):
        server = ProxyModels(types(*MAPS), SHORT, 4, aggregation=aggregation)
        server.step(1, {name: start(name) for name in MAPS}, {"resnet": 0, "mobilenet": 0, "cnn": 7}, public())
        found[aggregation] = server.proxy
    assert not equal({"": found["file"]}, {"": found["fedavg"]})


def test_pairs_count_n_squared_when_the_own_architecture_is_transferred_too():
    assert len(PairwiseModels(types(*MAPS), SHORT, 4).wires) == 6
    assert len(PairwiseModels(types(*MAPS), SHORT, 4, same_arch_transfer="wire").wires) == 9


def test_taps_that_do_not_exist_are_one_sentence():
    wrong = {"cnn": Type(SPECS["cnn"], ("conv1", "conv3")), "resnet": Type(SPECS["resnet"])}
    with pytest.raises(UserError, match=r"no module 'conv3' to tap; did you mean 'conv[12]'\?"):
        ProxyModels(wrong, Options(), 1)
