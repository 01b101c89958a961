"""BatchNorm's statistics measured in a pass over clients' data."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config
from fedscale_ext.data.store import open_data_set
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.models.families.network_pair import FEATURES, pair_spec
from fedscale_ext.models.multi_exit import family as multi_exit
from fedscale_ext.tasks.bn_statistics import client_sums, in_batches, layers, sums, template, with_statistics

SHAPE = (1, 8, 8)
SPEC = models.named_spec("nasbench201_base", SHAPE, 5)


def network() -> nn.Module:
    module = models.build(SPEC)
    module.load_state_dict(models.initial_state(SPEC, 1))
    return module


def clients(*counts: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [index + torch.randn(count, *SHAPE, generator=generator) * (index + 1) for index, count in enumerate(counts)]


def total_of(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}


def test_the_first_layer_has_torchs_own_statistics_of_the_pooled_data() -> None:
    module, data = network(), clients(4, 9, 6)
    start = {name: value.clone() for name, value in module.state_dict().items()}
    state = with_statistics(start, total_of([sums(module, [samples]) for samples in data]))
    norm = nn.BatchNorm2d(8, momentum=None)
    norm(network().stem.conv(torch.cat(data)))
    torch.testing.assert_close(state["stem.bn.running_mean"], norm.running_mean)
    torch.testing.assert_close(state["stem.bn.running_var"], norm.running_var)
    assert all(torch.equal(state[name], value) for name, value in start.items() if "running" not in name)
    # what averaging batches' variances leaves out: how the clients' means differ
    between = torch.stack([network().stem.conv(samples).var((0, 2, 3)) for samples in data]).mean(0)
    assert (state["stem.bn.running_var"] > between).any()


def test_what_drops_at_random_in_training_drops_nothing_here() -> None:
    """Tests drop nothing, either; and what was drawn before must not decide."""
    plain, drops = (
        nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.BatchNorm2d(4), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)))
        for layer in (nn.Identity(), nn.Dropout(0.5))
    )
    drops.load_state_dict(plain.state_dict())
    for one, other in zip(sums(plain, clients(5)).values(), sums(drops, clients(5)).values(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("one", "other", "joined"),
    [("nasbench201_base", "lenet_6k", FEATURES), ("multi_exit_cnn3", "nasbench201_base", "")],
)
def test_pairs_of_networks_compute_what_they_compute_in_training(one: str, other: str, joined: str) -> None:
    """Layers without parts, such as a last one, return something else in a test."""
    pair = models.build(pair_spec(models.named_spec(one, SHAPE, 5), models.named_spec(other, SHAPE, 5), joined=joined))
    counts = [value for name, value in sums(pair, clients(6)).items() if name.endswith(".count")]
    assert len(counts) == len(layers(pair.state_dict())) and all(counts)


def test_a_network_that_drops_by_a_function_draws_the_same_whatever_was_drawn_before() -> None:
    class Drops(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(functional.dropout(x, 0.5, self.training))

    data = clients(6, 8)
    worker = SimpleNamespace(
        data=SimpleNamespace(train_rows=lambda client: np.arange(len(data[client - 1]))),
        test_batch=100, seed=1, device_inputs=lambda rows: data[len(rows) == 8],
    )  # fmt: skip
    first = client_sums(worker, Drops(), [1, 2])
    torch.rand(5)
    assert all(torch.equal(first[name], tensor) for name, tensor in client_sums(worker, Drops(), [1, 2]).items())
    other = client_sums(SimpleNamespace(**{**vars(worker), "seed": 2}), Drops(), [1, 2])
    assert not torch.equal(first["norm.sum"], other["norm.sum"])


def test_several_clients_equal_one_pass() -> None:
    data = clients(5, 7, 3)
    apart = total_of([sums(network(), [samples]) for samples in data])
    at_once = sums(network(), data)
    for name, value in apart.items():
        torch.testing.assert_close(value, at_once[name], rtol=1e-12, atol=1e-9)
    assert apart.keys() == template(network().state_dict()).keys()
    assert {name.rpartition(".")[0] for name in apart} == set(layers(network().state_dict()))


def test_statistics_of_a_prefix_are_those_of_the_whole_where_both_have_the_layer() -> None:
    spec = models.named_spec("multi_exit_vgg_small", (3, 16, 16), 5)
    whole, data = models.initial_state(spec, 1), torch.randn(12, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    every = sums(loaded(spec, whole), [data])
    for exits in (1, 2):
        small = multi_exit.prefix(spec, exits)
        state = {name: whole[name] for name in models.layout(small)}
        prefix_sums = sums(loaded(small, state), [data])
        assert prefix_sums.keys() == template(state).keys() < every.keys()
        assert all(torch.equal(value, every[name]) for name, value in prefix_sums.items())
        measured = with_statistics(state, prefix_sums)
        x = loaded(small, measured).common(data)  # in training: the batch's own statistics, which are all samples'
        torch.testing.assert_close(loaded(small, measured).eval().common(data), x, atol=1e-3, rtol=1e-3)


def loaded(spec: models.ModelSpec, state: dict[str, Tensor]) -> nn.Module:
    module = models.build(spec)
    module.load_state_dict(state)
    return module


def test_a_layer_without_samples_keeps_its_statistics() -> None:
    state = network().state_dict()
    assert all(torch.equal(value, state[name]) for name, value in with_statistics(state, template(state)).items())


@pytest.mark.parametrize(("rows", "most", "sizes"), [(10, 4, [4, 3, 3]), (5, 4, [3, 2]), (3, 2, [3]), (2, 9, [2])])
def test_no_batch_is_a_single_sample(rows: int, most: int, sizes: list[int]) -> None:
    parts = in_batches(np.arange(rows), most)
    assert [len(part) for part in parts] == sizes
    assert np.concatenate(parts).tolist() == list(range(rows))
    assert in_batches(np.arange(1), most) == []


def test_a_job_tests_its_models_with_measured_statistics(job_file: Path) -> None:
    """Only what is tested differs: training takes each batch's own statistics."""
    saved = {}
    for kind in ("running", "federated"):
        fedscale_ext.run(job_file, bn_statistics=kind, job_name=kind, eval_interval=1)
        saved[kind] = load_model(job_file.parent / "logs" / kind / "logs" / "models" / "global.safetensors")
    spec, running = saved["running"]
    _, measured = saved["federated"]
    assert all(torch.equal(running[name], measured[name]) for name in models.parameter_names(spec))
    assert not torch.equal(running["stem.bn.running_var"], measured["stem.bn.running_var"])


def test_clients_that_are_served_a_model_are_measured_although_it_is_too_large_for_them(job_file: Path) -> None:
    """Statistics of the few devices that afford it alone would not be those of whom it is tested on."""
    keys = {"model": "nasbench201_4x", "capacity_model": "nasbench201_base", "rounds": 1}
    fedscale_ext.run(job_file, **keys, bn_statistics="federated", job_name="large", seed=1)
    spec, state = load_model(job_file.parent / "logs" / "large" / "logs" / "models" / "global.safetensors")
    args = load_config(job_file).fedscale
    data = open_data_set(args.data_dir, args.data_set, seed=1)
    module = models.build(spec)
    module.load_state_dict(state)
    rows = [part for client in range(1, data.num_clients + 1) for part in in_batches(data.train_rows(client), 512)]
    expected = with_statistics(state, sums(module, map(data.batch, rows)))
    for layer in layers(state):
        torch.testing.assert_close(state[f"{layer}.running_var"], expected[f"{layer}.running_var"])
