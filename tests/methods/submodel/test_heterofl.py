"""HeteroFL's own: objective, scaler, and its aggregate against clients trained and inserted one by one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from job_results import result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config, make_config, with_values
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.types import State
from fedscale_ext.data import store
from fedscale_ext.methods.submodel.fedrolex import FedRolexAggregator
from fedscale_ext.methods.submodel.heterofl import HeteroFLAggregator, HeteroFLParams
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.submodels import coverage, extract, insert, narrowed, window
from fedscale_ext.training.label_mask import class_axes
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.samples import ClientSamples
from methods.harness import server

RATES = dict(zip("abcde", (1.0, 0.5, 0.25, 0.125, 0.0625), strict=True))


def test_clients_learn_their_own_classes_with_clipped_gradients_and_count_alike() -> None:
    aggregator = server(HeteroFLAggregator, "heterofl")
    (item,) = aggregator.assign(1, np.array([3]))
    assert dict(item.overrides) == {"own_classes": True, "clip_norm": 1.0}
    assert aggregator.weight(item) == 1.0
    assert reestimates_statistics(type(aggregator), aggregator.config)
    other = server(HeteroFLAggregator, "heterofl", mask=False, clip_norm="none", weighted=True)
    (item,) = other.assign(1, np.array([3]))
    assert dict(item.overrides) == {} and other.weight(item) == 30.0
    (item,) = server(HeteroFLAggregator, "heterofl", clip_norm=0.5).assign(1, np.array([3]))
    assert item.overrides["clip_norm"] == 0.5


def test_the_jobs_own_clipping_norm_goes_before_the_papers() -> None:
    config = make_config({}, {"method": "heterofl", "clip_norm": 0.25})
    assert make_params(HeteroFLParams, config).clip_norm == 0.25


def test_tests_are_masked_where_the_method_or_the_job_asks() -> None:
    assert not server(HeteroFLAggregator, "heterofl").masks_tests
    assert server(HeteroFLAggregator, "heterofl", mask_test=True).masks_tests
    assert make_params(HeteroFLParams, make_config({}, {"method": "heterofl", "mask_test": True})).mask_test
    config = make_config({}, {"method": "heterofl", "mask_test": True, "heterofl.mask_test": False})
    assert not make_params(HeteroFLParams, config).mask_test


def scaler_notices(aggregator: HeteroFLAggregator) -> list[str]:
    return [sentence for sentence in aggregator.settings_idle_with_models() if "scaler" in sentence]


def test_levels_have_a_scaler_where_the_family_has_one() -> None:
    cnn, plain = (server(HeteroFLAggregator, "heterofl", model="cnn_small", scaler=on) for on in (True, False))
    assert [cnn.pool[key].spec["scale"] for key in "bcde"] == [0.5, 0.25, 0.125, 0.0625]
    assert all("scale" not in dict(model.spec.fields) for model in [*plain.pool, cnn.pool["a"]])
    aggregator = server(HeteroFLAggregator, "heterofl")  # BatchNorm behind every convolution
    assert not scaler_notices(aggregator) and aggregator.pool["b"].spec == narrowed(aggregator.pool["a"].spec, 0.5)


def test_a_family_that_lacks_a_scaler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fedscale_ext.models.families.cnn.scaled")
    (notice,) = scaler_notices(server(HeteroFLAggregator, "heterofl", model="cnn_small"))
    assert notice == "the family 'cnn' has no scaler; its levels train without"
    assert not scaler_notices(server(HeteroFLAggregator, "heterofl", model="cnn_small", scaler=False))


def test_a_scaler_that_is_turned_off_in_vain_is_told() -> None:
    """With BatchNorm, jobs with and without it are equal; the default is not told of."""
    (notice,) = scaler_notices(server(HeteroFLAggregator, "heterofl", scaler=False))
    assert notice == "heterofl.scaler does nothing: the model has BatchNorm"
    assert not scaler_notices(server(HeteroFLAggregator, "heterofl", scaler=True))
    assert not scaler_notices(server(HeteroFLAggregator, "heterofl", model="cnn_small", scaler=False))


@pytest.mark.parametrize("method", ["heterofl", "fedrolex", "splitmix"])
def test_dense_convolutions_of_a_family_without_grouped_ones_are_told(method: str) -> None:
    for model, expected in (("resnet18", ["{}.dense does nothing: the family 'resnet' has no dense form"]),
                        ("mobilenetv3_small", [])):  # fmt: skip
        aggregator = server(method_class(method), method, model=model, dense=True, shape=(3, 32, 32))
        sentences = [sentence for sentence in aggregator.settings_idle_with_models() if "dense" in sentence]
        assert sentences == [sentence.format(method) for sentence in expected]


def test_grouped_convolutions_become_dense_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscale_ext.models.families.cnn.dense", lambda spec: spec.replace(dense=True), raising=False)
    aggregator = server(HeteroFLAggregator, "heterofl", model="cnn_small", dense=True)
    assert aggregator.pool["a"].spec["dense"] and aggregator.pool["e"].spec["dense"]
    assert "dense" not in dict(server(HeteroFLAggregator, "heterofl", model="cnn_small").pool["a"].spec.fields)


def trained_alone(config: Any, spec: models.ModelSpec, start: State, client: int, data: ClientSamples) -> State:
    """What a client makes of its level, by the plain client and no other part of the runtime."""
    job = {**config.job.model_dump(), **vars(config.fedscale)}
    settings = client_settings(client, **{**job, "own_classes": True, "clip_norm": 1.0})
    module = models.build(spec)
    module.load_state_dict(start)
    trained = MultiModelClient(settings, NO_BENCH).train(data, module, settings)["update_weight"]
    return {name: value.detach().clone() for name, value in trained.items()}


@pytest.mark.parametrize("model", ["cnn_small", "nasbench201_base"])
@pytest.mark.parametrize("cohort", [1, 3])
def test_a_round_is_the_mean_over_the_clients_that_hold_an_entry(job_file: Path, model: str, cohort: int) -> None:
    keys = {"method": "heterofl", "model": model, "rounds": 1, "num_participants": 7, "bn_statistics": "running"}
    keys |= {"cohort_size": cohort, "unit_size": 3, "local_steps": 1}
    fedscale_ext.run(job_file, **keys, job_name="round")
    job = result(job_file.parent / "logs" / "round" / "logs")
    spec, state = job["models"]["a"]
    serve = dict(enumerate(job["rounds"][0]["evaluation"]["serve"], start=1))
    assert len(set(serve.values())) > 2
    config = with_values(load_config(job_file), **keys)
    data = store.open_data_set(config.fedscale.data_dir, "femnist", test_split=config.job.test_split, seed=1)
    start, layout = models.initial_state(spec, 1), models.layout(spec)
    total = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in start.items()}
    count = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in start.items()}
    for client, key in serve.items():
        samples = ClientSamples(*data.tensors(data.train_rows(client)))
        channels = window(spec, RATES[key])
        moved = trained_alone(config, job["models"][key][0], extract(start, layout, channels), client, samples)
        covered = coverage(layout, channels)
        zeros = {name: torch.zeros(value.shape, dtype=torch.float64) for name, value in start.items()}
        mask = insert(zeros, {name: torch.ones_like(value) for name, value in moved.items()}, covered)
        there = torch.bincount(samples.y, minlength=spec["num_classes"]) > 0
        for name in class_axes(spec):  # classes are the first axis of these
            mask[name][~there] = 0.0
        for name, value in insert(zeros, moved, covered).items():
            total[name] += value * mask[name]
            count[name] += mask[name]
    partly = 0
    for name, value in state.items():
        expected = torch.where(count[name] > 0, total[name] / count[name], start[name].double())
        torch.testing.assert_close(value.double(), expected, atol=2e-6, rtol=1e-5)
        untouched = count[name] == 0
        assert torch.equal(value[untouched], start[name][untouched])
        partly += int((count[name] > 0).any() and (count[name] != count[name].max()).any())
    assert partly > 2


@pytest.mark.parametrize(("cls", "method"), [(HeteroFLAggregator, "heterofl"), (FedRolexAggregator, "fedrolex")])
def test_groups_put_the_weakest_on_the_narrowest_level(cls: type, method: str) -> None:
    keys = {"rates": [1.0, 0.5, 0.25], "groups": [3, 1, 2]}
    aggregator = server(cls, method, capacity=[9.0, 1e15, 3.0, 5.0, 1e14, 7.0], **keys)
    assert aggregator.level_of.tolist() == [1, 0, 2, 2, 0, 2]
    assert aggregator.selection_groups() is aggregator.level_of
    assert aggregator.beyond_capacity == 4  # nobody's narrowest level is that cheap, whoever is dealt it
    assert server(cls, method).selection_groups() is None
    with pytest.raises(UserError, match=rf"{method}.groups is \[3, 3\]; it must hold .* for each of 3 levels"):
        server(cls, method, rates=[1.0, 0.5, 0.25], groups=[3, 3])
    with pytest.raises(UserError, match=rf"{method}.levels is groups; give their sizes"):
        server(cls, method, levels="groups")
    with pytest.raises(UserError, match=rf"{method}.groups is given and {method}.levels is fix"):
        server(cls, method, levels="fix", groups=[2] * 5)
