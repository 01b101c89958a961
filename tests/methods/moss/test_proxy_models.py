"""The server's step: equal to the plain loop, its variants, its state, whatever the threads."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from evals.speed import moss_loop
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.methods.moss import losses
from fedscale_ext.methods.moss.knowledge_transfer import Options
from fedscale_ext.methods.moss.losses import observe
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
        wire._to(torch.device("cpu"), torch.float64)
    return server


def equal(one, other):
    return all(torch.equal(one[key][name], other[key][name]) for key in one for name in one[key])


@pytest.mark.parametrize("same", ["copy", "wire"])
def test_a_step_equals_the_plain_loop(same):
    server = as_double(ProxyModels(types(*MAPS), OPTIONS, 4, same_arch_transfer=same, threads=2))
    assert len(server.wires) == (4 if same == "copy" else 6)
    expected = moss_loop.server_step(server, 1, {name: start(name) for name in MAPS}, dict.fromkeys(MAPS, 10), public())
    result = step(server, MAPS)
    for key in MAPS:
        for name in result.models[key]:
            torch.testing.assert_close(result.models[key][name], expected[key][name], rtol=0, atol=1e-9, msg=name)


def test_the_next_rounds_proxies_begin_where_the_last_ones_mean_ended():
    server = as_double(ProxyModels(types(*MAPS), OPTIONS, 4, same_arch_transfer="copy", threads=2))
    large = max(MAPS, key=lambda name: models.cost(SPECS[name]).parameters)  # it is given PM^G itself
    samples = dict.fromkeys(MAPS, 10)
    mean = moss_loop.server_step(server, 1, {name: start(name) for name in MAPS}, samples, public())[large]
    step(server, MAPS)
    for wire in server.wires.values():  # the loop's Adam begins anew
        wire.moments, wire.steps = {name: torch.zeros_like(each) for name, each in wire.moments.items()}, 0
    plain = copy.deepcopy(server)
    plain.proxy = mean
    expected = moss_loop.server_step(plain, 2, {name: start(name, 2) for name in MAPS}, samples, public())
    states = step(server, MAPS, round=2, seed=2).models
    for key in MAPS:
        for name in states[key]:
            torch.testing.assert_close(states[key][name], expected[key][name], rtol=0, atol=1e-9, msg=name)


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


def test_persistent_proxies_begin_where_they_ended():
    results = {}
    for proxies in ("global", "persistent"):
        server, late = (ProxyModels(types(*MAPS), SHORT, 4, proxies=proxies) for _ in range(2))
        begins, ends = {}, {}
        for key in ("mobilenet", "cnn"):
            wire = server.wires[f"forward.{key}"]

            def noted(teacher, state, *rest, key=key, plain=wire.run, begins=begins, ends=ends):
                begins[key] = state
                ends[key], report = plain(teacher, state, *rest)
                return ends[key], report

            wire.run = noted
        first = step(server, MAPS)
        mean, ended = dict(server.proxy), dict(ends)
        tensors, data = server.state()
        late.load_state({name: each.clone() for name, each in tensors.items()}, data)
        second = step(server, MAPS, round=2)
        for key, state in begins.items():
            assert equal({"": state}, {"": ended[key] if proxies == "persistent" else mean})
        assert not equal({"": ended["cnn"]}, {"": mean})
        assert equal(second.models, step(late, MAPS, round=2).models)
        results[proxies] = first.models, second.models
    assert equal(results["global"][0], results["persistent"][0])  # all begin as one random state
    assert not equal(results["global"][1], results["persistent"][1])


def test_a_persistent_proxy_of_a_type_that_is_absent_or_diverges_stays():
    server = ProxyModels(types(*MAPS), SHORT, 4, proxies="persistent", same_arch_transfer="copy")
    step(server, MAPS)
    before = {key: dict(state) for key, state in server.type_proxies.items()}
    held = {name: start(name) for name in ("resnet", "cnn")}
    held["cnn"] = {name: each * 1e200 for name, each in held["cnn"].items()}
    assert server.step(2, held, dict.fromkeys(held, 10), public()).diverged
    assert equal(before, server.type_proxies)


@pytest.mark.parametrize("kind", [ProxyModels, PairwiseModels])
def test_statistics_of_the_public_samples_are_those_of_the_weights_that_are_served(kind):
    data = public()
    for whose in ("running", "public"):
        server = kind(types(*MAPS), SHORT, 4, statistics=whose)
        result = step(server, MAPS)
        states = {key: (SPECS[key], result.models[key]) for key in ("resnet", "mobilenet")}
        if kind is ProxyModels:
            states["proxy"] = server.architecture.spec, server.proxy
        for spec, state in states.values():
            again = losses.reestimated(spec, state, data.x, SHORT.batch_size)
            assert equal({"": again}, {"": state}) == (whose == "public")
            layer = next(name for name in state if name.endswith("running_mean"))  # the first: of the samples alone
            network = models.build(spec).double()
            network.load_state_dict(state)
            seen: list[torch.Tensor] = []
            network.get_submodule(layer.rpartition(".")[0]).register_forward_pre_hook(
                lambda _, x, seen=seen: seen.append(x[0])
            )
            network.train()(data.x)
            same = torch.allclose(state[layer], seen[0].mean((0, 2, 3)).to(state[layer].dtype), rtol=0, atol=1e-6)
            assert same == (whose == "public")


def test_a_type_of_the_proxys_architecture_is_copied():
    server = ProxyModels(types(*MAPS), SHORT, 4, same_arch_transfer="copy")
    large = max(MAPS, key=lambda name: models.cost(SPECS[name]).parameters)
    assert server.architecture.spec == SPECS[large]
    result = step(server, MAPS)
    assert result.fidelity[large] == 1.0 and equal({large: result.models[large]}, {large: server.proxy})
    only = step(server, (large,), round=2)
    assert equal(only.models, {large: start(large)}) and not only.reports


def test_types_that_did_not_take_part_have_no_part():
    server = ProxyModels(types(*MAPS), SHORT, 4)
    before = {name: each.clone() for name, each in server.state()[0].items() if ".cnn/" in name}
    result = step(server, ("resnet", "mobilenet"))
    assert result.models.keys() == result.fidelity.keys() == {"resnet", "mobilenet"}
    assert before and all(torch.equal(each, server.state()[0][name]) for name, each in before.items())


def test_without_file_samples_count():
    proxies = {}
    for aggregation in ("file", "fedavg"):
        server = ProxyModels(types(*MAPS), SHORT, 4, aggregation=aggregation)
        server.step(1, {name: start(name) for name in MAPS}, {"resnet": 0, "mobilenet": 0, "cnn": 7}, public())
        proxies[aggregation] = server.proxy
    assert not equal({"": proxies["file"]}, {"": proxies["fedavg"]})


@pytest.mark.parametrize("aggregation", ["file", "fedavg"])
def test_pairs_give_each_type_the_mean_by_file_of_itself_and_what_learnt_from_the_others(aggregation):
    names, samples, data = ("cnn", "mlp", "resnet"), {"cnn": 3, "mlp": 5, "resnet": 2}, public()
    switches = {"aggregation": aggregation, "same_arch_transfer": "copy"}
    server, plain = (PairwiseModels(types(*names), SHORT, 4, **switches) for _ in range(2))
    held = {name: start(name) for name in names}
    new = server.step(1, held, samples, data).models
    for i in names:
        states, weights = [], []
        for k in names:
            states.append(held[i])
            weights.append(1.0)
            if k != i:
                wire = plain.wires[f"{k}.{i}"]
                teacher = observe(SPECS[k], held[k], data.x, wire.teacher_taps)
                draw = torch_stream(4, 1, "moss", f"{k}.{i}")
                states[-1] = wire.run(teacher, held[i], data.x, data.labels, draw)[0]
                one, other = teacher.logits.numpy(), observe(SPECS[i], states[-1], data.x, ()).logits.numpy()
                cosine = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
                weights[-1] = float(cosine.mean() + 1) / 2
        weights = weights if aggregation == "file" else [samples[k] for k in names]
        assert min(weights) > 0 and len(set(weights)) == 3
        for name, each in new[i].items():
            if each.is_floating_point():
                mean = sum(w * s[name].numpy() for w, s in zip(weights, states, strict=True)) / sum(weights)
                np.testing.assert_allclose(each.numpy(), mean, rtol=1e-9, atol=1e-12, err_msg=name)


def test_pairs_count_n_squared_when_the_own_architecture_is_transferred_too():
    assert len(PairwiseModels(types(*MAPS), SHORT, 4, same_arch_transfer="copy").wires) == 6
    assert len(PairwiseModels(types(*MAPS), SHORT, 4).wires) == 9


def test_taps_that_do_not_exist_are_one_sentence():
    wrong = {"cnn": Type(SPECS["cnn"], ("conv1", "conv3")), "resnet": Type(SPECS["resnet"])}
    with pytest.raises(UserError, match=r"no module 'conv3' to tap; did you mean 'conv[12]'\?"):
        ProxyModels(wrong, Options(), 1)


def finite(server, result):
    states = [*result.models.values(), server.state()[0]]
    return all(torch.isfinite(each).all() for state in states for each in state.values())


@pytest.mark.parametrize("kind", [ProxyModels, PairwiseModels])
def test_a_type_that_diverges_is_left_out_and_keeps_its_model(kind):
    one, without = (kind(types(*MAPS), SHORT, 4) for _ in range(2))
    held = {name: start(name) for name in MAPS}
    held["cnn"] = {name: each * 1e200 for name, each in held["cnn"].items()}  # finite, and its answers are not
    result = one.step(1, held, dict.fromkeys(MAPS, 10), public())
    others = {name: held[name] for name in MAPS if name != "cnn"}
    expected = without.step(1, others, dict.fromkeys(others, 10), public())
    assert equal({"cnn": result.models["cnn"]}, {"cnn": held["cnn"]})
    assert result.models.keys() == set(MAPS) and equal(expected.models, result.models)
    assert result.fidelity == expected.fidelity and result.reports == expected.reports and not expected.diverged
    diverged = ["forward.cnn", "backward.cnn"] if kind is ProxyModels else [n for n in one.wires if "cnn" in n]
    assert sorted(result.diverged) == sorted(diverged) and finite(one, result)
    again = one.step(2, {name: start(name) for name in MAPS}, dict.fromkeys(MAPS, 10), public())
    assert not again.diverged and finite(one, again)  # its networks have begun anew


@pytest.mark.parametrize("same", ["copy", "wire"])
@pytest.mark.parametrize("kind", [ProxyModels, PairwiseModels])
def test_where_every_transfer_diverges_all_stay_as_they_were(kind, same):
    server = kind(types(*MAPS), replace(SHORT, lr=1e200), 4, same_arch_transfer=same)
    before = copy.deepcopy(getattr(server, "proxy", {}))
    result = step(server, MAPS)
    assert set(result.diverged) <= server.wires.keys() and not result.fidelity.keys() & server.wires.keys()
    assert not result.reports and finite(server, result)
    assert equal(result.models, {name: start(name) for name in MAPS})
    if kind is ProxyModels and same == "wire":  # nobody has brought a proxy
        assert not result.fidelity and equal({"": before}, {"": server.proxy})
