"""Algorithm 2 of Reddi et al. (ICLR 2021) by hand, on parameters only."""

import pytest
import torch

from fedscale_ext.methods.averaging.server_optimizer import ServerOptimizer


def one(value, dtype=torch.float64):
    return {"w": torch.tensor([value], dtype=dtype)}


def test_yogi_against_a_sequence_computed_by_hand():
    yogi = ServerOptimizer("yogi", eta=1.0, tau=1.0, beta=0.5, beta2=0.5)
    # change 3: m = 1.5, v = 1 - 0.5 * 9 * sign(1 - 9) = 5.5, x = 0 + 1.5 / (sqrt 5.5 + 1)
    x = yogi.step(one(0.0), one(3.0), ["w"])
    assert float(x["w"]) == pytest.approx(1.5 / (5.5**0.5 + 1), rel=1e-12)
    # change 1: m = 0.75 + 0.5 = 1.25, v = 5.5 - 0.5 * 1 * sign(5.5 - 1) = 5
    after = yogi.step(x, {"w": x["w"] + 1}, ["w"])
    assert float(after["w"] - x["w"]) == pytest.approx(1.25 / (5**0.5 + 1), rel=1e-12)
    # no change: v stays, the momentum goes on: m = 0.625
    last = yogi.step(after, after, ["w"])
    assert float(last["w"] - after["w"]) == pytest.approx(0.625 / (5**0.5 + 1), rel=1e-12)


def test_adam_against_a_sequence_computed_by_hand():
    adam = ServerOptimizer("adam", eta=2.0, tau=1.0, beta=0.5, beta2=0.5)
    x = adam.step(one(0.0), one(3.0), ["w"])  # v = 0.5 + 4.5
    assert float(x["w"]) == pytest.approx(2 * 1.5 / (5**0.5 + 1), rel=1e-12)
    after = adam.step(x, {"w": x["w"] - 1}, ["w"])  # m = 0.75 - 0.5, v = 2.5 + 0.5
    assert float(after["w"] - x["w"]) == pytest.approx(2 * 0.25 / (3**0.5 + 1), rel=1e-12)


def test_buffers_take_the_clients_mean_with_their_dtypes():
    yogi = ServerOptimizer("yogi", eta=0.1, tau=1e-3, beta=0.9, beta2=0.99)
    old = {"w": torch.zeros(2), "running_var": torch.ones(2), "num_batches_tracked": torch.tensor(4)}
    mean = {"w": torch.ones(2), "running_var": torch.full((2,), 3.0), "num_batches_tracked": torch.tensor(24)}
    new = yogi.step(old, mean, ["w"])
    assert torch.equal(new["running_var"], mean["running_var"])
    assert torch.equal(new["num_batches_tracked"], torch.tensor(24))
    assert new["w"].dtype == torch.float32
    assert not torch.equal(new["w"], mean["w"])
    assert set(yogi.tensors()) == {"m/w", "v/w"}
    assert torch.equal(old["w"], torch.zeros(2))


def test_moments_survive_a_checkpoint():
    first = ServerOptimizer("yogi", 0.1, 1e-3, 0.9, 0.99)
    x = first.step(one(0.0), one(1.0), ["w"])
    second = ServerOptimizer("yogi", 0.1, 1e-3, 0.9, 0.99)
    second.load({name: tensor.clone() for name, tensor in first.tensors().items()})
    mean = {"w": x["w"] - 0.3}
    assert torch.equal(second.step(x, mean, ["w"])["w"], first.step(x, mean, ["w"])["w"])
