import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext.methods.hypemefed.factorisation import factors, matrix_shape, to_matrix
from fedscale_ext.methods.hypemefed.hypernetwork import HyperNetwork, VectorNetwork
from fedscale_ext.methods.hypemefed.hypernetwork_training import train
from fedscale_ext.methods.hypemefed.losses import Target, factor_loss, weight_loss
from fedscale_ext.methods.hypemefed.mlp import Mlp
from tests.methods.hypemefed import reference

SOURCE, TARGET = (6, 4, 3, 3), (8, 6, 3, 3)


def numbers(shape, seed, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def network(dtype=torch.float64, hidden=16):
    sides = zip(matrix_shape(SOURCE), matrix_shape(TARGET), strict=True)
    net = HyperNetwork([Mlp(inputs, hidden, outputs) for inputs, outputs in sides], torch.Generator().manual_seed(3))
    net.values = net.values.to(dtype)
    return net


def samples(count, k=5, dtype=torch.float64):
    weights = [(numbers(SOURCE, i, dtype), numbers(TARGET, 50 + i, dtype)) for i in range(count)]
    return [(factors(to_matrix(a), k), Target.of(to_matrix(b))) for a, b in weights]


@given(st.integers(1, 5), st.integers(1, 8), st.integers(1, 8), st.integers(0, 99))
def test_gram_loss_is_the_plain_one(k, m, n, seed):
    p, q, t = numbers((k, m), seed), numbers((k, n), seed + 1), numbers((m, n), seed + 2)
    p.requires_grad_(), q.requires_grad_()
    plain = torch.nn.functional.mse_loss(p.T @ q, t)
    plain.backward()
    with torch.no_grad():
        loss, by_p, by_q = weight_loss(p, q, Target.of(t))
    for value, expected in ((loss, plain.detach()), (by_p, p.grad), (by_q, q.grad)):
        assert torch.allclose(value, expected, atol=1e-9)


def test_gram_loss_is_the_plain_one_in_float32():
    p, q, t = (numbers(shape, i, torch.float32) for i, shape in enumerate([(100, 192), (100, 384), (192, 384)]))
    loss, by_p, _ = weight_loss(p, q, Target.of(t))
    error = p.T.double() @ q.double() - t.double()
    assert float(loss) == pytest.approx(float(error.square().mean()), rel=1e-6)
    expected = 2 / t.numel() * (q.double() @ error.T)
    assert float((by_p - expected).norm() / expected.norm()) < 1e-6


@pytest.mark.parametrize("count", [1, 3])
def test_training_equals_autograd_and_torchs_adam(count):
    net, drawn = network(), samples(count)
    modules = [reference.module(part, flat) for part, flat in zip(net.parts, net._split(net.values), strict=True)]
    expected = reference.train(modules, [(*source, target.matrix) for source, target in drawn], 6, 5e-3)
    assert train(net, drawn, [range(len(drawn))] * 6, 5e-3) == pytest.approx(expected, rel=1e-9)
    assert torch.allclose(net.values, reference.flat(modules), atol=1e-9)


def test_predictions_are_those_of_the_modules():
    net, ((p, q), _) = network(), samples(1)[0]
    modules = [reference.module(part, flat) for part, flat in zip(net.parts, net._split(net.values), strict=True)]
    prediction = net.predict((p, q))
    assert torch.allclose(prediction[0], modules[0](p.T).T) and torch.allclose(prediction[1], modules[1](q))


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_output_does_not_depend_on_the_decompositions_signs(flips):
    # (u_r, v_r) -> (-u_r, -v_r) is the same weight; a decomposition that returns it must change nothing
    net, matrix = network(), to_matrix(numbers(SOURCE, 1))
    u, s, vt = torch.linalg.svd(matrix, full_matrices=False)
    signs = torch.tensor([-1.0 if flip else 1.0 for flip in flips] + [1.0] * (len(s) - 5), dtype=u.dtype)

    def flipped(*args, **kwargs):
        return u * signs, s, signs[:, None] * vt

    plain = net.predict(factors(matrix, 12))
    real, torch.linalg.svd = torch.linalg.svd, flipped
    try:
        prediction = net.predict(factors(matrix, 12))
    finally:
        torch.linalg.svd = real
    assert torch.equal(prediction[0], plain[0]) and torch.equal(prediction[1], plain[1])


def test_factor_loss_is_the_components_mean_squared_error():
    net, (source, _) = network(), samples(1)[0]
    target = factors(to_matrix(numbers(TARGET, 9)), 5)
    rows = net.predict(source)
    into = torch.zeros_like(net.values)
    loss = net.gradients((source, target), net.values, into)
    expected = sum(torch.nn.functional.mse_loss(a, b) for a, b in zip(rows, target, strict=True))
    assert float(loss) == pytest.approx(float(expected)) and into.any()
    few = factors(to_matrix(numbers(TARGET, 9)), 2)  # components beyond the target's have no gradient
    _, by_p, by_q = factor_loss(rows[0].T, rows[1], few)
    assert by_p[:2].all() and not by_p[2:].any() and not by_q[2:].any()
    # nor do those that the prediction lacks
    loss, by_p, by_q = factor_loss(rows[0].T[:3], rows[1][:3], target)
    pairs = ((rows[0][:, :3], target[0][:, :3]), (rows[1][:3], target[1][:3]))
    assert float(loss) == pytest.approx(sum(float(torch.nn.functional.mse_loss(a, b)) for a, b in pairs))
    assert by_p.shape == rows[0].T[:3].shape and by_q.shape == rows[1][:3].shape and by_p.all() and by_q.all()


def test_a_vector_network_learns_its_rows():
    net = VectorNetwork([Mlp(10, 16, 12)], torch.Generator().manual_seed(0))
    pair = numbers((3, 10), 0, torch.float32), numbers((3, 12), 1, torch.float32)
    losses = train(net, [pair], [[0]] * 60, 5e-3)
    assert losses[-1] < 0.5 * losses[0]
    assert float((net.predict(pair[0]) - pair[1]).square().mean()) == pytest.approx(losses[-1], rel=0.2)


def test_training_lowers_the_loss_and_goes_on_where_it_was():
    net, drawn = network(torch.float32), samples(3, dtype=torch.float32)
    first = train(net, drawn, [range(len(drawn))] * 25, 5e-3)
    second = train(net, drawn, [range(len(drawn))] * 25, 5e-3)
    assert first[-1] < first[0] and second[-1] < first[-1] and net.rounds == 2


def test_moments_are_kept_only_where_asked_for():
    drawn = samples(2)
    whole, halves, anew = network(), network(), network()
    train(whole, drawn, [range(len(drawn))] * 4, 1e-2)
    for net, keep in ((halves, True), (anew, False)):
        for _ in range(2):
            train(net, drawn, [range(len(drawn))] * 2, 1e-2, keep_moments=keep)
    assert torch.equal(halves.values, whole.values) and not torch.equal(anew.values, whole.values)
    assert halves.moments is not None and anew.moments is None


def test_without_samples_nothing_happens():
    net = network()
    before = net.values.clone()
    assert train(net, [], []) == [] and net.rounds == 0 and torch.equal(net.values, before)


@pytest.mark.parametrize("keep", [False, True])
def test_training_that_diverges_leaves_the_network_as_it_was(keep):
    net, drawn = network(torch.float32), samples(2, dtype=torch.float32)
    train(net, drawn, [range(len(drawn))] * 2, 5e-3, keep_moments=keep)
    before = net.values.clone()
    with pytest.raises(FloatingPointError, match="diverged"):
        train(net, drawn, [range(len(drawn))] * 2, 1e20, keep_moments=keep)
    assert torch.equal(net.values, before) and net.moments is None and net.rounds == 1
    assert train(net, drawn, [range(len(drawn))] * 2, 5e-3, keep_moments=keep)[-1] < 1e3


def test_bfloat16_products_learn_as_well():
    exact, rounded = network(torch.float32), network(torch.float32)
    drawn = samples(2, dtype=torch.float32)
    expected = train(exact, drawn, [range(len(drawn))] * 25, 5e-3)
    losses = train(rounded, drawn, [range(len(drawn))] * 25, 5e-3, precision=torch.bfloat16)
    assert losses[-1] == pytest.approx(expected[-1], rel=0.02) and rounded.values.dtype == torch.float32


def test_initial_values_are_linear_layers():
    net = network(hidden=400)
    part, layers = net.parts[0], net.parts[0].layers(net._split(net.values)[0])
    for tensor, fan_in in ((layers.w1, part.inputs), (layers.b1, part.inputs), (layers.w2, 400)):
        bound = fan_in**-0.5
        assert tensor.abs().max() <= bound and float(tensor.std()) == pytest.approx(bound / 3**0.5, rel=0.1)
