import numpy as np
import pytest
import torch

from fedscale_ext.methods.hypemefed.factorisation import to_matrix
from fedscale_ext.methods.hypemefed.hypernetwork_set import HyperNetworks
from fedscale_ext.methods.hypemefed.params import HyperNetworkParams
from tests.methods.hypemefed.reference import shapes, state

CONVS = [f"block{block}.conv{j}.weight" for block in (2, 3) for j in (1, 2)]
SMALL = {"k": 6, "hidden": 24, "lr": 5e-3}


def networks(threads=2, **options):
    return HyperNetworks(
        shapes(), HyperNetworkParams(**{**SMALL, **options}), torch.Generator().manual_seed(1), threads=threads
    )


def clients():
    return [state(exits, seed) for seed, exits in enumerate((1, 1, 2, 2, 3, 3))]


def test_each_client_gets_what_it_lacks_and_nothing_else():
    nets, states = networks(), clients()
    assert sorted(nets.train(states)) == [name.removesuffix(".weight") for name in CONVS]
    generated = nets.generate(states)
    assert [sorted(each) for each in generated] == [CONVS, CONVS, CONVS[2:], CONVS[2:], [], []]
    assert all(tuple(value.shape) == shapes()[name] for each in generated for name, value in each.items())


def test_what_is_generated_follows_the_client_and_the_training():
    nets, states = networks(), clients()
    nets.train(states)
    first, second, *_ = nets.generate(states)
    nets.train(states)
    again = nets.generate(states)[0]
    truth = clients()[-1]
    for name in CONVS:
        assert not torch.equal(first[name], second[name])  # another client, other weights
        assert not torch.equal(first[name], again[name])  # the networks moved on
    error = sum(float((again[name] - truth[name]).abs().mean()) for name in CONVS)
    for _ in range(6):
        nets.train(states)
    learnt = nets.generate(states)[0]
    assert sum(float((learnt[name] - truth[name]).abs().mean()) for name in CONVS) < error


@pytest.mark.parametrize("options", [{}, {"k": "all"}, {"variant": "naive"}, {"generate": "+bn+fc"}])
def test_generated_tensors_have_the_norms_that_are_given_and_the_next_block_comes_from_them(options):
    nets, states = networks(**options), clients()
    nets.train(states)
    names = [name for pair in nets.pairs for name in pair.names(pair.target)]
    norms = {name: 3.0 + number for number, name in enumerate(names)}
    (generated,) = nets.generate([states[0]], norms)
    assert sorted(generated) == sorted(names)
    for name, value in generated.items():
        assert float(value.double().norm()) == pytest.approx(norms[name], rel=1e-4)
    second = {name: value for name, value in generated.items() if name.startswith(("block2", "exit2"))}
    (rest,) = nets.generate([{**states[0], **second}], norms)
    for name, value in rest.items():
        torch.testing.assert_close(value, generated[name], atol=5e-3, rtol=5e-3)


@pytest.mark.parametrize("options", [{}, {"variant": "naive"}, {"k": "all"}])
def test_what_is_not_finite_is_left_out_and_so_is_what_comes_from_it(options):
    nets, states = networks(**options), clients()
    nets.train(states)
    before = nets.generate(states)
    assert nets.not_finite == []
    nets.networks["block2.conv2"].values *= 1e30
    after = nets.generate(states)
    assert nets.not_finite == ["block2.conv2"]
    assert [sorted(each) for each in after] == [CONVS[::2], CONVS[::2], CONVS[2:], CONVS[2:], [], []]
    assert all(torch.equal(value, before[0][name]) for name, value in after[0].items())


def test_what_cannot_be_decomposed_ends_the_chain(monkeypatch):
    def fail(*_):
        raise torch.linalg.LinAlgError("the algorithm failed to converge")

    nets, states = networks(), clients()
    nets.train(states)
    monkeypatch.setattr("fedscale_ext.methods.hypemefed.hypernetwork_set.product_factors", fail)
    assert sorted(nets.generate(states)[0]) == CONVS[:2]
    assert nets.not_finite == ["block3.conv1", "block3.conv2"]


def test_each_epoch_takes_the_states_in_an_order_of_its_own():
    states = clients()
    one, other, fixed = networks(1, epochs=4), networks(4, epochs=4), networks(epochs=4)
    for nets in (one, other):
        nets.train(states, lambda target: np.random.default_rng(len(target) + int(target[-1])))
    fixed.train(states)
    assert fixed.orders["block2.conv1"] == [[2, 3, 4, 5]] * 4 and fixed.orders["block3.conv2"] == [[4, 5]] * 4
    assert all(sorted(order) == [2, 3, 4, 5] for order in one.orders["block2.conv1"])
    assert len({tuple(order) for order in one.orders["block2.conv1"]}) > 1 and one.orders == other.orders
    name = "block2.conv1.values"
    assert torch.equal(one.state()[0][name], other.state()[0][name])
    assert not torch.equal(one.state()[0][name], fixed.state()[0][name])


@pytest.mark.parametrize(("k", "most"), [(6, 6), ("all", 12)])  # of 18: what is generated has no more than its source
def test_blocks_come_from_generated_blocks(k, most):
    nets, states = networks(k=k), clients()
    nets.train(states)
    (generated,) = nets.generate([states[0]])
    # the same in two steps: block 2 handed in as if it were the client's own
    (rest,) = nets.generate([{**states[0], **{name: generated[name] for name in CONVS[:2]}}])
    for name in CONVS[2:]:
        assert torch.allclose(rest[name], generated[name], atol=1e-3)
    assert torch.linalg.matrix_rank(to_matrix(generated[CONVS[0]])) <= most


def test_a_round_without_deep_clients_leaves_their_network_alone():
    nets = networks()
    shallow = clients()[:4]
    assert sorted(nets.train(shallow)) == ["block2.conv1", "block2.conv2"]
    assert sorted(nets.generate(shallow)[0]) == CONVS[:2]  # a network that was never trained generates nothing
    nets.train(clients())
    before = nets.networks["block3.conv1"].values.clone()
    nets.train(shallow)
    assert torch.equal(nets.networks["block3.conv1"].values, before)
    assert sorted(nets.generate(shallow)[0]) == CONVS
    assert nets.train([]) == {}


@pytest.mark.parametrize(
    "options",
    [{}, {"optimizer": "kept"}, {"variant": "naive"}, {"loss": "factors"}, {"generate": "+bn+fc"}, {"k": "all"}],
    ids=lambda options: "-".join(map(str, options.values())) or "default",
)
def test_state_round_trip_and_threads_are_bitwise(options):
    options = {**options, "epochs": 3}
    states = clients()
    whole, half, resumed = networks(1, **options), networks(4, **options), networks(2, **options)
    for _ in range(2):
        whole.train(states)
    half.train(states)
    tensors, json = half.state()
    resumed.load_state({name: value.clone() for name, value in tensors.items()}, json)
    resumed.train(states)
    assert whole.state()[1] == resumed.state()[1]
    for name, value in whole.state()[0].items():
        assert torch.equal(value, resumed.state()[0][name]), name
    for one, other in zip(whole.generate(states), resumed.generate(states), strict=True):
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_torch_threads_are_left_as_they_were():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        networks().generate(clients())
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_norms_and_exits_on_request():
    nets, states = networks(generate="+bn+fc"), clients()
    assert len(nets.networks) == 4 + 4 + 2
    nets.train(states)
    generated = nets.generate(states)[0]
    expected = {name for name in shapes() if name[-1] != "d" and not name.startswith(("common", "block1", "exit1"))}
    assert set(generated) == expected
    assert all((value > 0).all() for name, value in generated.items() if name.endswith("running_var"))
    assert tuple(generated["exit3.linear.weight"].shape) == shapes()["exit3.linear.weight"]
    assert not networks(generate="+fc").networks.keys() & {"block2.bn1", "block3.bn2"}


def test_the_naive_network_maps_all_of_the_weight():
    nets, states = networks(variant="naive"), clients()
    source, target = (torch.Size(shapes()[f"block{block}.conv1.weight"]).numel() for block in (1, 2))
    assert nets.networks["block2.conv1"].parameters == 24 * (source + 1) + target * 25
    losses = nets.train(states)
    assert all(values[-1] < values[0] for values in losses.values())
    assert sorted(nets.generate(states)[0]) == CONVS


def test_a_generated_weight_is_no_view_of_the_networks():
    nets, states = networks(variant="naive"), clients()
    nets.train(states)
    first = nets.generate(states)[0]
    copies = {name: value.clone() for name, value in first.items()}
    nets.train(states)
    nets.generate(states)
    assert all(torch.equal(first[name], copies[name]) for name in copies)
