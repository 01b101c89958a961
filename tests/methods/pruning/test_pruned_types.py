"""What Hermes, TailorFL, FedMask and FedSkel have in common: types, jobs, personal models, what is refused."""

from pathlib import Path
from typing import Any

import pytest
from client_settings import client_settings
from job_results import assert_equal, result
from server.test_jobs import command

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import open_data_set
from fedscale_ext.methods.pruning.hermes import HermesClient
from fedscale_ext.methods.pruning.masked_client import trainable
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.util.tensor_files import read_tensors
from methods.harness import CLASSES, SHAPE, server

METHODS = ("hermes", "tailorfl", "fedmask", "fedskel")
RANGES = ["1-3", "4-5", "6-7"]


def keys_of(method: str, **keys: Any) -> dict[str, Any]:
    params = {"hermes.threshold": 0.2, "hermes.step": 0.5} if method == "hermes" else {}
    return {
        "method": method, "model": "lenet_6k", "rounds": 4, "num_participants": 6, "learning_rate": 0.05,
        "local_steps": 6, "checkpoint_interval": 2, "cohort_size": 2, f"{method}.ranges": RANGES, **params, **keys,
    }  # fmt: skip


def folder(job_file: Path, name: str) -> Path:
    return job_file.parent / "logs" / name / "logs"


def run(job_file: Path, name: str, method: str, **keys: Any) -> dict[str, Any]:
    return fedscale_ext.run(job_file, job_name=name, **keys_of(method, **keys))


@pytest.mark.parametrize("method", METHODS)
def test_a_job_resumes_bit_for_bit_and_learns(job_file: Path, method: str) -> None:
    summary = run(job_file, "job", method, personalise_epochs=1)
    here = folder(job_file, "job")
    unbroken = result(here)
    (here / "checkpoints" / "checkpoint-000004.safetensors").unlink()  # as if killed in round 4
    again = run(job_file, "job", method, personalise_epochs=1, resume=True)
    assert_equal(unbroken, result(here))
    assert again["personalised"]["per_client"] == summary["personalised"]["per_client"]
    assert again["results"] == summary["results"]
    losses = [entry["train_loss"] for entry in unbroken["rounds"]]
    assert losses[-1] < losses[0]
    types = {row["type"]: row for row in summary["results"]["types"]}
    assert list(types) == ["x1", "x0.4", "x0.05", "all"]
    assert types["x1"]["one_way_mb"] > types["x0.4"]["one_way_mb"] > types["x0.05"]["one_way_mb"]


_SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in METHODS if method != "hermes"]


@pytest.mark.parametrize("method", ["hermes", *_SLOW])
def test_executors_play_no_part(job_file: Path, method: str) -> None:
    keys = keys_of(method, unit_size=1, rounds=2)
    fedscale_ext.run(job_file, job_name="here", **keys)
    assert_equal(result(folder(job_file, "here")), command(job_file, "there", **keys, worker_ips="localhost:[3]"))


def test_clients_are_tested_on_their_own_networks(job_file: Path, tiny_femnist: Path) -> None:
    """Hermes's, computed here again from the files of the job."""
    summary = run(job_file, "job", "hermes")
    here = folder(job_file, "job")
    spec, state = load_model(here / "models" / "global.safetensors")
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    bench: Any = type("Bench", (), {"spec": lambda self, key: spec})()
    pruned, expected = 0, []
    for number in range(1, 8):
        x, y = data.tensors(data.test_rows(number))
        if not len(y):
            continue
        files = sorted((here / "client_state" / "global").glob(f"{number}-*.safetensors"))
        module = models.build(spec)
        module.load_state_dict(state)
        settings = client_settings(number, client_state=read_tensors(files[-1])[0] if files else {}, model_key="global")
        HermesClient(settings, bench).load_personal_model(module, settings)
        pruned += any(bool((one == 0).all(0).any()) for one in trainable(module).values() if one.dim() == 4)
        expected.append(float((module.eval()(x).argmax(1) == y).double().mean()))
    assert pruned
    assert [value for value in summary["accuracy"]["per_client"] if value is not None] == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
def test_types_are_a_ratio_or_a_models_size(method: str) -> None:
    aggregator = server(
        method_class(method), method, model="lenet_80k", shape=(3, 16, 16), ranges=["1-2", "3-4", "5-6"]
    )
    every = aggregator.pool["global"].cost.parameters
    shares = [cost.parameters / every for cost in aggregator.costs]
    assert shares == pytest.approx([1.0, 0.4, 0.05], abs=0.02) and aggregator.type_of.tolist() == [0, 0, 1, 1, 2, 2]
    matched = server(
        method_class(method), method, model="lenet_80k", shape=(3, 16, 16),
        match_params=["lenet_80k", "lenet_6k"], ranges=["1-2", "3-6"],
    )  # fmt: skip
    like = models.cost(models.named_spec("lenet_6k", (3, 16, 16), 5)).parameters
    assert matched.keys == ["lenet_80k", "lenet_6k"]
    assert matched.costs[1].parameters == pytest.approx(like, rel=0.1)


def test_capacity_puts_devices_on_the_largest_type_that_they_afford() -> None:
    cls, keys = method_class("hermes"), {"model": "lenet_80k", "shape": (3, 16, 16)}
    macs = [cost.forward_macs for cost in server(cls, "hermes", ranges=["1-2", "3-4", "5-6"], **keys).costs]
    assert sorted(macs, reverse=True) == macs
    aggregator = server(cls, "hermes", capacity=[macs[0], macs[0] - 1, macs[1], macs[1] - 1, macs[2], 1.0], **keys)
    assert aggregator.type_of.tolist() == [0, 1, 1, 2, 2, 2]
    assert aggregator.smallest_spec() == list(aggregator.type_specs().values())[-1]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("keys", "sentence"), [
    ({"param_ratio": [1.0, 0.0]}, "param_ratio is .*; it must hold a share above 0 and at most 1"),
    ({"param_ratio": []}, "it must hold a share above 0"),
    ({"param_ratio": [0.4, 0.4]}, "has 'x0.4' twice"),
    ({"groups": [1, 2], "ranges": ["1-6"]}, "groups and .*ranges are both given"),
    ({"groups": [1, 2]}, "groups has 2 entries for 3 types"),
    ({"ranges": ["1-2", "2-4", "5-6"]}, "gives a client two types"),
    ({"match_params": ["lenet_80k"], "ranges": ["1-6"]}, "match_params has lenet_80k with .* name smaller ones"),
    ({"match_params": ["lenet_6q"], "ranges": ["1-6"]}, "there is no model 'lenet_6q'"),
])  # fmt: skip
def test_types_that_cannot_be_are_refused(method: str, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        server(method_class(method), method, model="lenet_6k", **keys)


@pytest.mark.parametrize(("method", "keys", "sentence"), [
    ("hermes", {"threshold": 1.5}, "hermes.threshold is 1.5; it must be from 0 to 1"),
    ("hermes", {"step": 1.0}, "hermes.step is 1.0; it must be above 0 and below 1"),
    ("hermes", {"validation": 0.0}, "hermes.validation is 0.0"),
    ("hermes", {"lasso": -1.0}, "hermes.lasso is -1.0; it must be at least 0"),
    ("tailorfl", {"sparsity": -1.0}, "tailorfl.sparsity is -1.0"),
    ("tailorfl", {"tuning": 1.1}, "tailorfl.tuning is 1.1; it must be from 0 to 1"),
    ("fedmask", {"threshold": 1.0}, "fedmask.threshold is 1.0; it must be above 0 and below 1"),
    ("fedmask", {"lr": 0.0}, "fedmask.lr is 0.0; it must be above 0"),
    ("fedskel", {"every": 0}, "fedskel.every is 0; it must be at least 1"),
    ("fedskel", {"model": "single_exit_mlp"}, "fedskel chooses filters, and the model .* has no convolution"),
])  # fmt: skip
def test_bad_hyperparameters_are_refused(method: str, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        server(method_class(method), method, **{"model": "lenet_6k", "ranges": ["1-2", "3-4", "5-6"], **keys})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("key", "value"), [("control_variates", True), ("max_update_norm", 3.0)])
def test_what_reads_a_clients_change_as_its_training_is_refused(method: str, key: str, value: Any) -> None:
    config = make_config({}, {"method": method, key: value})
    with pytest.raises(UserError, match=f"{key} needs clients that .* {method} .*; remove {key}"):
        check_local_training(config, method_class(method))


@pytest.mark.parametrize(
    ("method", "narrowing"),
    [
        ("hermes", "prunes it only while its validation accuracy reaches hermes.threshold"),
        ("tailorfl", "chooses after its first round which channels it keeps"),
        ("fedmask", "prunes it to its type's channels in its first round"),
    ],
)
@pytest.mark.parametrize(("ratio", "affordable", "expected"), [(0.5, 4, True), (0.5, 6, False), (1.0, 4, False)])
def test_a_job_tells_who_does_not_afford_the_whole_model_of_the_first_rounds(
    method: str, narrowing: str, ratio: float, affordable: int, expected: bool
) -> None:
    whole = models.cost(models.named_spec("lenet_6k", SHAPE, CLASSES)).forward_macs
    capacity = [whole] * affordable + [whole - 1] * (6 - affordable)
    aggregator = server(
        method_class(method), method, model="lenet_6k", capacity=capacity, param_ratio=[ratio], groups=[6]
    )
    sentence = (
        f"each client begins with the whole model, {whole:,} MACs per sample, which {6 - affordable} of 6 clients do "
        f"not afford, and {narrowing}"
    )
    notices = [event["message"] for event in aggregator.events if event["event"] == "notice"]
    assert (sentence in notices) == expected and sum("begins with the whole" in each for each in notices) == expected


def test_hermes_that_begins_with_its_types_size_tells_nothing_of_the_whole_model() -> None:
    aggregator = server(method_class("hermes"), "hermes", model="lenet_6k", capacity=[1.0] * 6, param_ratio=[0.5],
                        groups=[6], start="type")  # fmt: skip
    assert not any("begins with the whole" in event["message"] for event in aggregator.events)
