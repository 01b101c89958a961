"""DepthFL: its loss, its levels, FedDyn, and jobs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, client_settings
from job_results import assert_equal, result
from torch.func import functional_call
from torch.nn import functional
from training.cohorts import both_ways

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import load_config, make_config, with_values
from fedscale_ext.config.method_params import make_params
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import open_data_set
from fedscale_ext.entry.in_process import run_in_process
from fedscale_ext.methods.submodel.depthfl import DepthFLAggregator, DepthFLClient
from fedscale_ext.methods.submodel.feddyn import DynamicGradients
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.server.method_base.method_traits import reestimates_statistics
from fedscale_ext.server.scaffold import ControlVariates
from fedscale_ext.submodels import count_mean
from fedscale_ext.util.tensor_files import read_tensors
from methods.harness import CLASSES, server, trained_states, updates_for

from .exit_models import divergence, logits, looped, network

SHAPE = (1, 16, 16)
SPEC = models.named_spec("multi_exit_vgg_small", SHAPE, CLASSES)
MACS = [models.cost(prefix(SPEC, exits)).forward_macs for exits in (1, 2, 3)]


def depthfl(**keys: Any) -> Any:
    params = {"model": "multi_exit_vgg_small", "capacity": [MACS[index // 2] for index in range(6)], **keys}
    return server(DepthFLAggregator, "depthfl", shape=SHAPE, **params)


def configured(**keys: Any) -> Any:
    return make_config({}, {"method": "depthfl", "model": "multi_exit_vgg_small", **keys})


# ---- the loss ----


@pytest.mark.parametrize("exits", [1, 2, 4])
@pytest.mark.parametrize("consistency", [0.0, 0.4])
def test_the_loss_is_the_loop(exits: int, consistency: float) -> None:
    output, labels = logits(exits)

    def loss(each: torch.Tensor, entropy: Any) -> torch.Tensor:
        total = torch.zeros(())
        for i in range(exits):
            total = total + entropy(i)
            for j in range(exits):
                if i != j:
                    taught = divergence(each[j].softmax(-1).detach(), each[i].softmax(-1))
                    total = total + consistency * taught / (exits - 1)
        return total

    losses = DepthFLClient(client_settings(consistency=consistency), NO_BENCH).losses(output, labels)
    expected = looped(output, labels, loss)
    torch.testing.assert_close(losses, expected, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad(each.sum(), output)[0] for each in (losses, expected)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


def test_teachers_are_fixed() -> None:
    """Exits that agree teach each other nothing, and one exit's gradient does not depend on what it teaches."""
    output, labels = logits(2)
    far = output.detach().clone()
    far[..., 1, :] += torch.tensor([3.0, 0.0, 0.0, -3.0])
    both = torch.cat([output.detach()[:, :, :1], far[:, :, 1:]], -2).requires_grad_()
    alone, taught = (
        torch.autograd.grad(DepthFLClient(client_settings(consistency=w), NO_BENCH).losses(both, labels).sum(), both)[0]
        for w in (0.0, 1.0)
    )
    p = both.detach().softmax(-1)
    torch.testing.assert_close(
        taught - alone, torch.stack([p[..., 0, :] - p[..., 1, :], p[..., 1, :] - p[..., 0, :]], -2)
    )


def test_steps_are_recorded_only_where_the_loss_stays() -> None:
    assert DepthFLClient(client_settings(), NO_BENCH).loss_key == ()
    assert DepthFLClient(client_settings(consistency=0.1), NO_BENCH).loss_key is None


@pytest.mark.parametrize("backbone", ["cnn", "mlp"])
def test_cohorts_equal_clients_one_after_another(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = models.build(network(backbone))

    def settings(client: int, **changes: Any) -> Any:
        generator = torch.Generator().manual_seed(client)
        offset = {name: 0.1 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
                  for name, value in module.named_parameters()}  # fmt: skip
        return client_settings(client, offset=offset, feddyn=0.1, prox_mu=0.1, consistency=0.4, **changes)

    monkeypatch.setattr("training.cohorts.conf", settings)
    build = lambda: models.build(network(backbone))  # noqa: E731
    assert both_ways(build, [12, 17, 3], trainer=DepthFLClient, local_steps=5) < 1e-9


# ---- levels and rounds ----


def test_clients_train_prefixes_that_predict_by_all_exits() -> None:
    aggregator = depthfl()
    items = aggregator.assign(1, np.arange(1, 7))
    assert [item.model for item in items] == ["exit1", "exit1", "exit2", "exit2", "exit3", "exit3"]
    assert {model.spec["predict"] for model in aggregator.pool} == {"mean"}
    assert aggregator.evaluation_plan().named == {"global": "exit3"}
    assert not reestimates_statistics(type(aggregator), aggregator.config)
    assert {aggregator.weight(item) for item in items} == {1.0} and depthfl(weighted=True).weight(items[1]) == 20.0
    assert (depthfl(groups=[1, 1, 4], capacity=[6.0, 5, 4, 3, 2, 1]).level_of == [0, 0, 0, 0, 1, 2]).all()


def test_exits_learn_from_each_other_ever_more() -> None:
    aggregator = depthfl(ramp_up=4.0)
    for round in (1, 2, 5, 9):
        w = math.exp(-5 * (1 - min(round - 1, 4) / 4) ** 2)
        items = aggregator.assign(round, np.arange(1, 7))
        assert [item.objective.get("consistency") for item in items] == [None, None, w, w, w, w]
        assert all(item.objective["feddyn"] == item.overrides["prox_mu"] == 0.1 for item in items)
    assert all(not item.objective for item in depthfl(kd=False, alpha=0.0).assign(1, np.arange(1, 7)))
    aggregator.config = configured(prox_mu=0.5)  # FedProx beside it
    assert aggregator.assign(1, np.array([1]))[0].overrides["prox_mu"] == 0.6


def test_inclusive_trains_and_serves_the_deepest_exit_of_each_prefix() -> None:
    aggregator = depthfl(inclusive=True)
    exits = {
        key: {name[:5] for name in aggregator.pool[key].state if name.startswith("exit")} for key in aggregator.keys
    }
    assert exits == {"exit3": {"exit3"}, "exit2": {"exit2"}, "exit1": {"exit1"}}
    assert {model.spec["predict"] for model in aggregator.pool} == {"last"}
    assert all(not item.objective for item in aggregator.assign(1, np.arange(1, 7)))
    config = configured(**{"depthfl.inclusive": True, "depthfl.alpha": 0.2})
    assert make_params(DepthFLAggregator.Params, config).alpha == 0.2


def test_feddyn_sends_nothing_beside_the_model(tmp_path: Path) -> None:
    aggregator = depthfl(alpha=0.5)
    aggregator.log_dir = tmp_path
    (gradients,) = aggregator.client_tensors()
    aggregator.client_tensors_by_kind = {gradients.kind: gradients}
    (item,) = aggregator.assign(1, np.array([1]))
    assert aggregator.download_bytes(item) == aggregator.upload_bytes(item) == aggregator.pool[item.model].cost.bytes


def test_what_somebody_trained_is_corrected(tmp_path: Path) -> None:
    aggregator = depthfl(alpha=0.5)
    aggregator.log_dir = tmp_path
    (gradients,) = aggregator.client_tensors()
    aggregator.client_tensors_by_kind = {gradients.kind: gradients}
    assert isinstance(gradients, DynamicGradients)
    old = {name: tensor.clone() for name, tensor in aggregator.pool["exit3"].state.items()}
    items = aggregator.assign(1, np.array([1, 3]))  # nobody trains block 3
    gradients.begin(items)
    updates = updates_for(aggregator, items)
    states = trained_states(aggregator, 1, updates)
    assert all(not tensor.any() for item in items for tensor in gradients.outgoing(item).values())
    names = models.parameter_names(SPEC)
    for item in items:
        state = states[item.client]
        gradients.take(1, item, {name: 0.5 * (old[name] - state[name]) for name in names if name in state})
    parts = [(states[u.client], aggregator.pool[u.item.model].part.covered, 1.0) for u in updates]
    mean = count_mean(old, parts)
    aggregator.aggregate(1, updates, {"exit3": mean})
    new = aggregator.pool["exit3"].state
    for name in old:
        holders = [client for client in (1, 3) if name in states[client]]
        if name not in names or not holders:
            assert torch.equal(new[name], mean[name]), name
            continue
        h = sum(-0.5 * (states[client][name] - old[name]) for client in holders) / 6  # over all clients
        torch.testing.assert_close(new[name], mean[name] - h / 0.5, msg=name)
    gradients.end_round()
    gradients.begin(items)
    torch.testing.assert_close(gradients.outgoing(items[0])["exit1.linear.bias"],
                               0.5 * (states[1]["exit1.linear.bias"] - old["exit1.linear.bias"]))  # fmt: skip
    assert depthfl(alpha=0.0).client_tensors() == []


def test_what_nobody_trains_in_a_round_keeps_its_value_though_h_is_known(tmp_path: Path) -> None:
    aggregator = depthfl(alpha=0.5)
    aggregator.log_dir = tmp_path
    (gradients,) = aggregator.client_tensors()
    aggregator.client_tensors_by_kind = {gradients.kind: gradients}
    assert isinstance(gradients, DynamicGradients)
    for round, client in ((1, 6), (2, 1)):  # of the whole network, of its first exit
        old = {name: tensor.clone() for name, tensor in aggregator.pool["exit3"].state.items()}
        (item,) = items = aggregator.assign(round, np.array([client]))
        gradients.begin(items)
        updates = updates_for(aggregator, items)
        state = trained_states(aggregator, round, updates)[client]
        names = [name for name in models.parameter_names(SPEC) if name in state]
        gradients.take(round, item, {name: 0.5 * (old[name] - state[name]) for name in names})
        aggregator.aggregate(round, updates, {"exit3": count_mean(old, [(state, dict.fromkeys(state), 1.0)])})
        gradients.end_round()
    assert gradients.mean("exit3")["block3.conv1.weight"].all()
    for name, tensor in aggregator.pool["exit3"].state.items():
        assert torch.equal(tensor, old[name]) == (name not in state), name


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"alpha": -0.1}, "alpha is -0.1; it must be at least 0"),
        ({"alpha": float("nan")}, "must be a finite number"),
        ({"ramp_up": 0.0}, "ramp_up is 0.0; it must be above 0"),
        ({"groups": [3, 4]}, "a number of clients for each of 3 levels"),
        ({"levels": "groups"}, "depthfl.levels is groups; give their sizes"),
        ({"levels": "fix", "shares": [0.0, 0.0, 0.0]}, "shares must add up to 1, and these add up to 0"),
        ({"model": "nasbench201_base"}, "needs a network with several exits"),
    ],
)
def test_bad_hyperparameters_are_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        depthfl(**keys)


# ---- jobs ----

# more samples than any client has: each step sees all of them; float32 steps, as jobs have them
JOB: dict[str, Any] = {
    "method": "depthfl", "model": "multi_exit_mlp", "num_participants": 5, "batch_size": 40, "learning_rate": 0.05,
    "client_weight_decay": 0.0, "client_momentum": 0.0, "depthfl.groups": [3, 2, 2], "depthfl.ramp_up": 4,
}  # fmt: skip


def run(job_file: Path, name: str, at_once: bool = True, **keys: Any) -> dict[str, Any]:
    """A whole job's results; ``at_once``: in this process."""
    keys = {**JOB, "job_name": name, **keys}
    if at_once:
        run_in_process(with_values(load_config(job_file), **keys))
    else:
        fedscale_ext.run(job_file, **keys)
    return result(job_file.parent / "logs" / name / "logs")


def by_hand(done: dict[str, Any], data: Any, alpha: float, lr: float, steps: int) -> dict[str, torch.Tensor]:
    """Algorithm 1 of both papers in float64: the whole network's state after the job's rounds."""
    spec = done["models"]["exit3"][0]
    depth = {client: 1 + ["exit1", "exit2", "exit3"].index(key)
             for client, key in enumerate(done["rounds"][-1]["evaluation"]["serve"], 1)}  # fmt: skip
    x = {name: tensor.double() for name, tensor in models.initial_state(spec, 1).items()}
    h = {name: torch.zeros_like(tensor) for name, tensor in x.items()}
    gradients: dict[int, dict[str, torch.Tensor]] = {}
    for number, entry in enumerate(done["rounds"], 1):
        w, trained = math.exp(-5 * (1 - min((number - 1) / 4, 1)) ** 2), {}
        for client in entry["participants"]:
            module = models.build(prefix(spec, depth[client])).double().train()
            start = {name: x[name] for name, _ in module.named_parameters()}
            mine = gradients.setdefault(client, {name: torch.zeros_like(value) for name, value in start.items()})
            samples, labels = data.tensors(data.train_rows(client))
            y = dict(start)
            for _ in range(steps):
                leaves = {name: value.clone().requires_grad_() for name, value in y.items()}
                out = functional_call(module, leaves, (samples.double(),)).unbind(1)
                loss = sum(functional.cross_entropy(one, labels) for one in out)
                for i, one in enumerate(out):
                    for j, other in enumerate(out):
                        if i != j:
                            target = other.detach().softmax(1)
                            kl = functional.kl_div(one.log_softmax(1), target, reduction="batchmean")
                            loss = loss + w * kl / (len(out) - 1)
                for name, leaf in leaves.items():
                    loss = loss - (mine[name] * leaf).sum() + alpha / 2 * (leaf - start[name]).square().sum()
                derivatives = torch.autograd.grad(loss, list(leaves.values()))
                y = {name: y[name] - lr * g for name, g in zip(y, derivatives, strict=True)}
            gradients[client] = {name: mine[name] - alpha * (y[name] - start[name]) for name in y}
            trained[client] = y
        new = {}
        for name, value in x.items():
            held = [y[name] for y in trained.values() if name in y]
            if held:
                mean = sum(held) / len(held)
                h[name] = h[name] - alpha * len(held) * (mean - value) / len(depth)
                new[name] = mean - h[name] / alpha
        x = {**x, **new}
    return x


@pytest.mark.parametrize("keys", [{"cohort_size": 1}, {"cohort_size": 4, "unit_size": 4}])
def test_a_job_is_the_plain_algorithm(job_file: Path, tiny_femnist: Path, keys: dict[str, Any]) -> None:
    done = run(job_file, "job", rounds=3, eval_interval=3, local_steps=3, **keys)
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    x, state = by_hand(done, data, 0.1, 0.05, 3), done["models"]["exit3"][1]
    assert max(float((state[name] - x[name]).abs().max()) for name in x) < 1e-5
    if keys["cohort_size"] == 1:
        plain = run(job_file, "plain", rounds=3, eval_interval=3, local_steps=3, **{"depthfl.alpha": 0})
        assert max(float((plain["models"]["exit3"][1][name] - x[name]).abs().max()) for name in x) > 1e-3
        folder = job_file.parent / "logs" / "job" / "logs" / "variates" / "exit3"
        held = {len(read_tensors(path)[0]) for path in folder.iterdir()}
        assert len(held) > 1  # of each client what its prefix has


def test_a_job_resumes_to_the_same_result(job_file: Path) -> None:
    keys = {"batch_size": 5, "client_momentum": 0.5}
    unbroken = run(job_file, "unbroken", at_once=False, rounds=3, **keys)
    run(job_file, "broken", rounds=2, **keys)
    resumed = run(job_file, "broken", at_once=False, rounds=3, resume=True, **keys)
    assert_equal(resumed, unbroken)
    inclusive = run(job_file, "inclusive", rounds=1, eval_interval=1, **keys, **{"depthfl.inclusive": True})
    assert inclusive["models"]["exit3"][0]["heads"] == "last"
    assert inclusive["models"]["global"][0]["heads"] == "all"


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"control_variates": True}, "control_variates and depthfl.alpha both correct"),
        ({"dp_noise_multiplier": 1.0}, "depthfl.alpha tells of clients' data"),
    ],
)
def test_what_does_not_go_with_feddyn_is_told(keys: dict[str, Any], sentence: str) -> None:
    aggregator = depthfl()
    aggregator.config = configured(**keys)
    with pytest.raises(UserError, match=sentence):
        aggregator.init_state(None, aggregator.task)


def test_scaffold_goes_with_it_where_feddyn_does_not(tmp_path: Path) -> None:
    aggregator = depthfl(alpha=0.0)
    aggregator.config, aggregator.log_dir = configured(control_variates=True), tmp_path
    assert [type(tensors) for tensors in aggregator.client_tensors()] == [ControlVariates]


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"rounds": 10},
            "the weight with which exits learn from each other ends at 0.009 of 1: depthfl.ramp_up is 300",
        ),
        ({"rounds": 10, "ramp_up": 9}, None),
        ({"rounds": 10, "kd": False}, None),
        ({"rounds": 10, "inclusive": True}, None),
    ],
)
def test_a_job_in_which_exits_hardly_learn_from_each_other_says_so(keys: dict[str, Any], sentence: str | None) -> None:
    said = [notice for notice in depthfl(**keys).notices if "ramp_up" in notice]
    assert said == ([] if sentence is None else [f"rounds is 10: {sentence}"])


@pytest.mark.parametrize(
    ("spent", "ramp_up", "sentence"),
    [
        (
            1e4,
            300.0,
            "stop_macs is spent after about 100 rounds: the weight with which exits learn from each other ends at 0.1 "
            "of 1: depthfl.ramp_up is 300",
        ),
        (1e4, 30.0, None),
        (1e3, 300.0, None),
    ],
)
def test_a_budget_that_ends_the_job_before_exits_learn_from_each_other_is_told(
    spent: float, ramp_up: float, sentence: str | None
) -> None:
    aggregator = depthfl(rounds=1000, ramp_up=ramp_up, stop_macs=1e6)
    aggregator.history, aggregator.spent_macs = [None], spent
    for round in range(2, 5):
        aggregator.assign(round, np.arange(1, 7))
    assert [notice for notice in aggregator.notices if "ramp_up" in notice] == ([sentence] if sentence else [])


def test_a_budget_that_outlasts_the_rounds_is_not_blamed_for_them() -> None:
    aggregator = depthfl(rounds=10, stop_macs=1e6)
    aggregator.history, aggregator.spent_macs = [None], 1e4
    aggregator.assign(2, np.arange(1, 7))
    assert [notice.split(":")[0] for notice in aggregator.notices if "ramp_up" in notice] == ["rounds is 10"]
