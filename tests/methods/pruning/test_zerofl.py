"""ZeroFL: SWAT's passes, what is handed in, what it counts for, whole jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from hypothesis import given
from hypothesis import strategies as st
from job_results import assert_equal, result
from server.test_jobs import in_process
from torch import nn
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.pruning.zerofl import (
    ZeroFLAggregator,
    ZeroFLClient,
    largest,
    reduce_upload,
    sparse_weights,
    swat,
)
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.training.local_training import MultiModelClient
from methods.harness import SHAPE, samples, server

SPEC = models.named_spec("nasbench201_base", SHAPE, 5)


def network() -> nn.Module:
    module = models.build(SPEC).double()
    module.load_state_dict(models.initial_state(SPEC, 2))
    return module


def settings(sparsity: float = 0.9, upload: str = "top_k_weights", share: float = 0.2, **changes: Any) -> ClientConfig:
    return client_settings(zerofl={"sparsity": sparsity, "upload": upload, "share": share}, **changes)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.floats(0, 1))
def test_the_largest_are_as_many_as_asked_and_no_other_is_larger(values: list[int], share: float) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    chosen = largest(x, share)
    assert int(chosen.sum()) == max(1, round(share * len(values)))
    assert not (~chosen).any() or x[chosen].abs().min() >= x[~chosen].abs().max()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (5, 6)),
        (nn.Linear(6, 4, bias=False), (2, 3, 6)),
        (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (3, 4, 7, 7)),
        (nn.Conv1d(4, 6, 3), (3, 4, 9)),
    ],
)
def test_swats_gradients(layer: Any, shape: tuple[int, ...]) -> None:
    layer.double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    inside = x * 1.0
    with swat(layer, 0.7):
        output = layer(inside)
    assert "forward" not in vars(layer)
    gradient = torch.randn(output.shape, dtype=torch.float64)
    by_x, *by_own = torch.autograd.grad(output, [x, *layer.parameters()], gradient)
    # torch on the sparse factors: the output and the input's gradient by weights, the weights' by inputs
    dense = {name: tensor.detach() for name, tensor in layer.named_parameters()}
    weight = torch.where(largest(layer.weight, 0.3), dense["weight"], 0.0)
    other = x.detach().clone().requires_grad_()
    expected = torch.func.functional_call(layer, {**dense, "weight": weight}, (other,))
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(by_x, torch.autograd.grad(expected, other, gradient)[0])
    dense_weight = dense["weight"].clone().requires_grad_()
    inputs = torch.where(largest(x, 0.3), x.detach(), 0.0)
    again = torch.func.functional_call(layer, {**dense, "weight": dense_weight}, (inputs,))
    torch.testing.assert_close(by_own[0], torch.autograd.grad(again, dense_weight, gradient)[0])
    assert int((by_own[0] != 0).sum()) > int((weight != 0).sum())  # what was left out can come back
    if "bias" in dense:
        torch.testing.assert_close(by_own[1], gradient.sum([0, *range(2, gradient.dim())]))


def test_without_sparsity_it_is_plain_training() -> None:
    data = samples(9)
    for keys in ({}, {"clip_norm": 0.3}, {"client_optimizer": "adam", "learning_rate": 0.01, "adam_eps": 1e-3}):
        dense = settings(0.0, "top_k_diff", 1.0, **keys)
        one, other = network(), network()
        result = ZeroFLClient(dense, NO_BENCH).train(data, one, dense)
        plain = MultiModelClient(dense, NO_BENCH).train(data, other, dense)
        assert result["moving_loss"] == pytest.approx(plain["moving_loss"], rel=1e-9)
        for name, tensor in plain["update_weight"].items():
            torch.testing.assert_close(result["update_weight"][name], tensor, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("upload", ["top_k_weights", "diff_on_top_k", "top_k_diff"])
def test_what_is_handed_in(upload: str) -> None:
    before = {"a.weight": torch.tensor([1.0, -2.0, 3.0, 0.5]), "b.weight": torch.tensor([[4.0, 4.0]])}
    after = {"a.weight": torch.tensor([1.1, -1.0, 3.2, 2.5]), "b.weight": torch.tensor([[5.0, 3.5]])}
    reduce_upload(before, after, upload, 0.5)
    expected = {
        "top_k_weights": ([0.0, 0.0, 3.2, 2.5], [[5.0, 0.0]]),
        "diff_on_top_k": ([1.0, -2.0, 3.2, 2.5], [[5.0, 4.0]]),
        "top_k_diff": ([1.0, -1.0, 3.0, 2.5], [[5.0, 4.0]]),
    }[upload]
    for tensor, values in zip(after.values(), expected, strict=True):
        assert torch.allclose(tensor, torch.tensor(values))


def test_a_client_trains_all_its_weights_and_hands_in_a_share() -> None:
    conf, module = settings(share=0.15), network()
    sent = ZeroFLClient(conf, NO_BENCH).train(samples(12), module, conf)["update_weight"]
    names = sparse_weights(module)
    for name, tensor in sent.items():
        alive = int((tensor != 0).sum())
        if name in names:
            assert alive == max(1, round(0.15 * tensor.numel()))
    assert all(functional.relu(sent[name]).isfinite().all() for name in sent)
    assert not torch.equal(sent["stem.bn.weight"], network().state_dict()["stem.bn.weight"])


def test_what_it_counts_for() -> None:
    aggregator = server(ZeroFLAggregator, "zerofl", sparsity=0.9, mask_ratio=0.1)
    (item,) = aggregator.assign(1, np.array([3]))
    cost, weights = aggregator.pool["global"].cost, sparse_weights(network())
    entries = sum(weight.numel() for weight in weights.values())
    values = sum(max(1, round(0.2 * weight.numel())) for weight in weights.values())
    bits = sum(-(-weight.numel() // 8) for weight in weights.values())
    assert item.upload == cost.bytes - 4 * (entries - values) + bits < 0.4 * cost.bytes
    assert item.bytes is None and aggregator.download_bytes(item) == cost.bytes
    assert aggregator.upload_bytes(item) == item.upload
    assert item.compute_fraction == pytest.approx(0.1)
    dense = server(ZeroFLAggregator, "zerofl", sparsity=0.9, mask_ratio=1.0, skips_zeros=False)
    (item,) = dense.assign(1, np.array([3]))
    assert (item.compute_fraction, item.upload, item.objective["zerofl"]["share"]) == (1.0, cost.bytes, 1.0)


def test_what_is_tested_is_the_network_of_the_forward_pass_and_what_trains_on_is_dense() -> None:
    """By dense passes a trained network of 90 % sparsity had 10 % on CIFAR-10, by its own 26."""
    aggregator = server(ZeroFLAggregator, "zerofl", sparsity=0.8)
    dense, module = dict(aggregator.pool["global"].state), models.build(aggregator.pool["global"].spec)
    for _ in range(2):  # a second test, or one without a round between, cuts nothing more
        assert set(aggregator.evaluation_plan().serve) == {"global"}
    served = aggregator.pool["global"].state
    module.load_state_dict(served)
    x = torch.randn(4, *aggregator.task.input_shape, generator=torch.Generator().manual_seed(1))
    output = module.eval()(x)
    module.load_state_dict(dense)
    with swat(module, 0.8):
        assert torch.equal(module(x), output)
    again = server(ZeroFLAggregator, "zerofl", sparsity=0.8)
    again.pool.update("global", served)
    again.load_state(*aggregator.state())  # a checkpoint is written after the test
    for one in (aggregator, again):
        one.assign(2, np.array([1]))
        assert all(torch.equal(tensor, dense[name]) for name, tensor in one.pool["global"].state.items())
        assert one.state() == ({}, {})


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [({"sparsity": 1.0}, "below 1"), ({"mask_ratio": -0.1}, "from 0 to 1"), ({"upload": "top"}, "zerofl.upload")],
)
def test_bad_input_is_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        server(ZeroFLAggregator, "zerofl", **keys)


def test_defaults_and_what_does_not_go_with_it() -> None:
    config = make_config({}, {"method": "zerofl", "control_variates": True})
    assert make_params(ZeroFLAggregator.Params, config).share == pytest.approx(0.2)
    with pytest.raises(UserError, match="uploads only a part"):
        check_local_training(config, ZeroFLAggregator)


def test_jobs_are_the_same_whoever_does_them_and_resume(job_file: Path) -> None:
    keys = {"method": "zerofl", "zerofl.sparsity": 0.8, "zerofl.upload": "top_k_diff"}
    there = in_process(job_file, job_name="there", **keys, num_executors=2)
    fedscale_ext.run(job_file, job_name="here", **keys, rounds=1, num_executors=1)
    fedscale_ext.run(job_file, job_name="here", **keys, resume=True)
    assert_equal(result(job_file.parent / "logs" / "here" / "logs"), there)
    last = there["rounds"][-1]
    assert not last["failed"] and last["upload_bytes"] < 0.5 * last["download_bytes"]
