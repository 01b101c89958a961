"""Local training: each client goes on from its own model, alone and in cohorts, hands nothing in, and is served it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.personal.local import INITIAL, LocalAggregator
from fedscale_ext.methods.personal.personal_models import PersonalModelClient, floating_tensors, load_tensors
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.submodels.model_pool import ModelPool
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.resident import Cohort
from fedscale_ext.util.tensor_files import read_tensors
from methods.harness import equal, play, pool_states, samples, server

SHAPE, CLASSES = (1, 8, 8), 5
SPEC = models.named_spec("nasbench201_base", SHAPE, CLASSES)
JOB = {"method": "local", "rounds": 3, "num_participants": 7, "filter_less": 0}


def network(seed: int = 7) -> torch.nn.Module:
    module = models.build(SPEC).double()
    module.load_state_dict(models.initial_state(SPEC, seed))
    return module


def client(settings: Any) -> PersonalModelClient:
    return PersonalModelClient(settings, SimpleNamespace(module=lambda key: network()))  # type: ignore[arg-type]


def test_the_server_keeps_the_initial_weights_and_nothing_travels() -> None:
    aggregator = server(LocalAggregator, "local")
    before = pool_states(aggregator)
    play(aggregator, 1)
    assert equal(pool_states(aggregator)[INITIAL], before[INITIAL])
    (item,) = aggregator.assign(2, np.array([3]))
    assert (aggregator.download_bytes(item), aggregator.upload_bytes(item)) == (0, 0)
    assert aggregator.evaluation_plan().serve == ["initial@own"] * 6 and not aggregator.evaluation_plan().named


def test_clients_that_may_never_train_are_told() -> None:
    aggregator = server(LocalAggregator, "local", clients=200)
    assert [event["message"] for event in aggregator.events] == [
        "clients that no round selects, or that are late in each, keep the initial weights: num_participants 200 "
        f"trains every client in every round, and it is {aggregator.args.num_participants}"
    ]
    assert not server(LocalAggregator, "local", clients=aggregator.args.num_participants).events
    aggregator.pool, aggregator.args.device_avail_file = (
        ModelPool(),
        "resampled",
    )  # where not all clients are always there
    aggregator.init_state(None, aggregator.task)
    assert "200 trains every client that is online in every round, and" in aggregator.events[-1]["message"]


def test_a_client_goes_on_from_its_own_model() -> None:
    state = floating_tensors(network(9).state_dict())
    conf, data = client_settings(client_state=state, model_key=INITIAL), samples(12)
    result = client(conf).train(data, network(), conf)
    alone, plain = network(9), client_settings()
    expected = floating_tensors(MultiModelClient(plain, NO_BENCH).train(data, alone, plain)["update_weight"])
    assert equal(result["client_state"], expected) and result["client_state"].keys() == state.keys()
    first = client_settings(client_state={}, model_key=INITIAL)  # it keeps nothing yet: the initial weights
    again = floating_tensors(MultiModelClient(plain, NO_BENCH).train(data, network(), plain)["update_weight"])
    assert equal(client(first).train(data, network(), first)["client_state"], again)


def test_side_by_side_is_one_after_another() -> None:
    data = [samples(12), samples(9, 1)]
    states = [floating_tensors(network(9).state_dict()), {}]
    confs = [client_settings(number, client_state=state, model_key=INITIAL) for number, state in enumerate(states, 1)]
    alone = [client(conf).train(each, network(), conf) for each, conf in zip(data, confs, strict=True)]
    module, stack = network(), stacked(network(), SHAPE)
    assert stack is not None
    cohort = Cohort(stack, module, SHAPE, 2, torch.device("cpu"), channels_last=True)
    cohort.restore({name: tensor.detach().clone() for name, tensor in module.state_dict().items()})
    together = client(confs[0]).train_cohort(data, cohort, confs)
    for one, other in zip(alone, together, strict=True):
        for name, tensor in one["client_state"].items():
            torch.testing.assert_close(other["client_state"][name], tensor, atol=1e-9, rtol=1e-9)
        assert one["moving_loss"] == pytest.approx(other["moving_loss"], abs=1e-9)
    assert not torch.equal(
        together[0]["client_state"]["head.linear.weight"], together[1]["client_state"]["head.linear.weight"]
    )


def test_what_it_keeps_is_what_it_is_served() -> None:
    state, module = floating_tensors(network(9).state_dict()), network()
    client(client_settings()).load_personal_model(module, client_settings(client_state=state))
    expected = network()
    load_tensors(expected, state)
    assert equal(floating_tensors(module.state_dict()), state) and equal(
        dict(module.state_dict()), dict(expected.state_dict())
    )


def job(job_file: Path, name: str, **keys: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    summary = fedscale_ext.run(job_file, job_name=name, **{**JOB, "model": "cnn_small", **keys})
    return summary, result(job_file.parent / "logs" / name / "logs")


def test_a_job_keeps_a_model_for_each_client_and_a_resumed_one_equals_it(job_file: Path) -> None:
    summary, whole = job(job_file, "whole")
    assert summary["cost"]["network_total_mb"] == 0 and summary["cost"]["training_macs"] > 0
    assert summary["accuracy"]["named"] == {} and set(summary["accuracy"]["served"]) == {"initial@own"}
    assert summary["cost"]["client_models"] == summary["clients"]["took_part"]
    folder = job_file.parent / "logs/whole/logs/client_state/initial"
    final = [read_tensors(folder / f"{number}-000003.safetensors")[0] for number in range(1, 8)]
    assert all(not equal(final[0], other) for other in final[1:])
    job(job_file, "parts", rounds=2)
    _, parts = job(job_file, "parts", resume=True)
    for rounds in (whole["rounds"], parts["rounds"]):
        del rounds[1]["evaluation"]
    assert_equal(whole, parts)


def test_tested_clients_that_never_trained_are_counted(job_file: Path) -> None:
    sentence = "of 6 tested clients never trained: what clients keep of their models has its initial weights"
    few, _ = job(job_file, "few", rounds=1, num_participants=1, filter_less=26)
    assert f"5 {sentence}" in few["notices"]
    everybody, _ = job(job_file, "everybody", rounds=1, num_participants=7)
    shared, _ = job(job_file, "shared", rounds=1, num_participants=1, filter_less=26, method="fedavg")
    assert not any(sentence in notice for one in (everybody, shared) for notice in one["notices"])


def test_one_client_alone_trains_as_under_fedavg(job_file: Path) -> None:
    """FedAvg's mean of one client is that client."""
    _, local = job(job_file, "alone", num_participants=1, filter_less=26)
    _, averaged = job(job_file, "mean", num_participants=1, filter_less=26, method="fedavg")
    for one, other in zip(local["rounds"], averaged["rounds"], strict=True):
        assert one["participants"] == other["participants"] == [5]
        assert one["train_loss"] == pytest.approx(other["train_loss"], rel=1e-5)
    first, last = (local["rounds"][index]["train_loss"] for index in (0, -1))
    assert last != first


@pytest.mark.parametrize("key", ["control_variates", "dp_noise_multiplier"])
def test_what_needs_an_exchange_is_refused(job_file: Path, key: str) -> None:
    keys = {"control_variates": True} if key == "control_variates" else {key: 1.0}
    with pytest.raises(UserError, match=f"local .*{key}"):
        job(job_file, "refused", **keys)


def test_a_deadline_refuses_no_client_for_transfers_that_are_not_made(job_file: Path) -> None:
    keys = {"rounds": 1, "capacity_rule": "deadline"}
    with pytest.raises(UserError, match="the slowest needs") as error:
        job(job_file, "short", method="fedavg", deadline_s=1e-6, **keys)
    deadline_s = 0.9 * float(str(error.value).partition("the slowest needs ")[2].split()[0])
    with pytest.raises(UserError, match="is too short"):
        job(job_file, "shared", method="fedavg", deadline_s=deadline_s, **keys)
    job(job_file, "alone", deadline_s=deadline_s, **keys)


def test_a_client_without_its_state_fails_with_a_sentence_for_the_methods_author(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PersonalModelClient, "completed_result", lambda self, result, *_: result)
    with pytest.raises(UserError, match="a client's result lacks 'client_state', which client_tensors lists"):
        job(job_file, "silent", rounds=1)


def test_clients_of_a_type_train_as_in_a_job_of_their_model_alone(job_file: Path) -> None:
    types, folder = ["cnn_small", "lenet_6k"], job_file.parent / "logs"
    keys: dict[str, Any] = {"local.types": types, "local.ranges": ["1-4", "5-7"], "cohort_size": 1, "rounds": 2}
    summary, _ = job(job_file, "types", **keys)
    assert [each["type"] for each in summary["results"]["types"]] == [*types, "all"]
    assert {each["traffic_mb"] for each in summary["results"]["types"]} == {0.0}
    for model, client in zip(types, (2, 6), strict=True):
        job(job_file, model, model=model, cohort_size=1, rounds=2)
        file = f"{client}-000002.safetensors"
        mixed, alone = (read_tensors(folder / path / file)[0] for path in (
            f"types/logs/client_state/{model}", f"{model}/logs/client_state/initial"))  # fmt: skip
        assert equal(mixed, alone)


def test_what_deals_types_needs_types(job_file: Path) -> None:
    with pytest.raises(UserError, match=r"^local\.ranges deals types to clients, and local\.types names none"):
        job(job_file, "dealt", **{"local.ranges": ["1-7"]})
