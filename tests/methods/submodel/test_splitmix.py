"""Split-Mix by its hooks, and in jobs: budgets, coverage, initialisation, means per base, ensembles, resume."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.store import open_data_set
from fedscale_ext.methods.submodel import splitmix
from fedscale_ext.methods.submodel.splitmix import SplitMixAggregator, SplitMixParams
from fedscale_ext.server import aggregator as runtime
from fedscale_ext.submodels import count_mean, narrowed
from methods.harness import equal, pool_states, server, trained, updates_for

FULL = models.named_spec("cnn_small", (1, 28, 28), 62)


def base_macs(r: float) -> int:
    aggregator = server(SplitMixAggregator, "splitmix", r=r)
    return aggregator.pool["b0"].cost.forward_macs


def weak(capacities: list[float], **keys: Any) -> Any:
    """With these capacities in MACs of a base net of width 1/4."""
    macs = base_macs(0.25)
    return server(
        SplitMixAggregator,
        "splitmix",
        clients=len(capacities),
        capacity=[capacity * macs for capacity in capacities],
        **{"r": 0.25, **keys},
    )


def test_bases_are_narrow_and_of_their_own_weights() -> None:
    aggregator = server(SplitMixAggregator, "splitmix")
    full = models.group_widths(aggregator.initial_spec())
    assert server(SplitMixAggregator, "splitmix", r=0.5).pool["b0"].spec == narrowed(aggregator.initial_spec(), 0.5)
    assert [model.key for model in aggregator.pool] == [f"b{number}" for number in range(8)]
    for group, width in models.group_widths(aggregator.pool["b0"].spec).items():
        assert width == (full[group] if group in ("input", "classes") else full[group] // 8)
    states = [state["stem.conv.weight"] for state in pool_states(aggregator).values()]
    assert not any(torch.equal(one, states[0]) for one in states[1:])
    again = server(SplitMixAggregator, "splitmix")
    assert all(equal(state, pool_states(again)[key]) for key, state in pool_states(aggregator).items())


def test_fresh_weights_have_the_full_models_scale_but_where_the_input_is_read() -> None:
    base = models.resized(FULL, {"conv1": 4, "conv2": 8, "linear1": 7})
    plain = models.initial_state(base, 3)
    rescaled = splitmix.rescaled(plain, base, FULL)
    for name, tensor in plain.items():
        factor = 1.0 if name.startswith("conv1") else 0.5  # sqrt(1/4)
        assert torch.equal(rescaled[name], tensor * factor), name
    # as the full model's own: uniform, bounded by one over the root of its fan-in
    fan_in = 16 * 3 * 3
    assert 0.9 * fan_in**-0.5 < float(rescaled["conv2.weight"].abs().max()) <= fan_in**-0.5
    off = server(SplitMixAggregator, "splitmix", rescale_init=False)
    assert equal(off.pool["b0"].state, models.initial_state(off.pool["b0"].spec, 1))
    on = server(SplitMixAggregator, "splitmix")
    assert torch.equal(on.pool["b0"].state["stem.conv.weight"], off.pool["b0"].state["stem.conv.weight"])
    assert not torch.equal(on.pool["b0"].state["head.linear.weight"], off.pool["b0"].state["head.linear.weight"])


@pytest.mark.parametrize(
    "model",
    [
        "cnn_small",
        "resnet18",
        "mobilenetv3_small",
        "vit_small",
        "multi_exit_mlp",
        "tests.models.channels.networks:Net(width=32)",
    ],
)
def test_whatever_draws_the_weights_they_have_the_full_models_scale(model: str) -> None:
    full = models.configured_spec(model, (3, 32, 32), 10)
    base = narrowed(full, 0.25)
    state = splitmix.rescaled(models.initial_state(base, 3), base, full)
    compared = 0
    for name, tensor in models.initial_state(full, 3).items():
        if tensor.dim() > 1 and state[name].numel() > 300:
            assert float(state[name].std() / tensor.std()) == pytest.approx(1, abs=0.2), name
            compared += 1
    assert compared


def test_an_embedding_stays_as_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("fedscale_ext.models.families.custom_module.DRAWN_BY")
    full = models.configured_spec("tests.models.channels.networks:Symbols", (1, 1, 12), 4)
    base = narrowed(full, 0.25)
    plain = models.initial_state(base, 3)
    rescaled = splitmix.rescaled(plain, base, full)
    assert [name for name in plain if not torch.equal(plain[name], rescaled[name])] == ["head.weight", "head.bias"]


def test_dividing_in_front_of_batchnorm_changes_nothing_but_eps() -> None:
    # why there is no rescale_layer
    torch.manual_seed(1)
    x, r = torch.randn(16, 4, 5, 5, dtype=torch.float64), 0.125
    conv = torch.nn.Conv2d(4, 3, 3).double()
    plain, same_eps = (torch.nn.BatchNorm2d(3, eps=eps).double() for eps in (1e-5 * r * r, 1e-5))
    gradients = []
    for norm, scale in ((plain, 1.0), (same_eps, r)):
        conv.zero_grad()
        out = norm(conv(x) / scale)
        out[:, :, 1:3].tanh().sum().backward()
        gradients.append((out.detach(), conv.weight.grad.clone()))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_grouped_convolutions_become_dense_where_asked() -> None:
    for dense in (False, True):
        aggregator = server(
            SplitMixAggregator, "splitmix", model="mobilenetv3_small", shape=(1, 32, 32), r=0.5, dense=dense
        )
        parts = models.build(aggregator.pool["b1"].spec).modules()
        grouped = any(isinstance(part, torch.nn.Conv2d) and part.groups > 1 for part in parts)
        assert grouped != dense
        assert aggregator.smallest_spec() == aggregator.pool["b1"].spec


def test_a_budget_is_as_many_bases_as_fit_and_who_affords_none_is_named() -> None:
    aggregator = weak([0.5, 1, 1.9, 2, 3.5, 4, 99, 0.9])
    assert aggregator.budget.tolist() == [1, 1, 1, 2, 3, 4, 4, 1]
    event, gives = aggregator.events
    assert event["message"].startswith("2 of 8 clients afford less than the ")
    assert event["message"].endswith("they would train one base net all the same: 1, 8")
    one = aggregator.pool["b0"].cost
    assert gives["message"] == "splitmix gives 4 of 8 clients " + ", ".join(
        f"{clients}{number} base net{'s' * (number > 1)} ({number * one.parameters:,} parameters, "
        f"{number * one.forward_macs:,} MACs per sample)"
        for clients, number in (("", 1), ("1 ", 2), ("1 ", 3), ("2 ", 4))
    )
    gives, unaffordable = (event["message"] for event in weak([1, 2]).events)
    assert unaffordable.startswith(
        f"no client affords 4 base nets, the largest: it takes {4 * one.forward_macs:,} MACs"
    )
    many = weak([0.5] * 30).events[0]["message"]
    assert ", 20 and 10 more" in many and many.startswith("30 of 30")


def test_first_bases_come_in_turns_and_the_others_without_replacement() -> None:
    aggregator = weak([2] * 6)
    firsts = []
    for number in range(1, 5):
        items = aggregator.assign(number, np.arange(1, 7))
        assert [item.client for item in items] == [client for client in range(1, 7) for _ in range(2)]
        pairs = [[items[index].model, items[index + 1].model] for index in range(0, 12, 2)]
        assert all(len(set(pair)) == 2 for pair in pairs)
        firsts += [pair[0] for pair in pairs]
    turns = [firsts[start : start + 4] for start in range(0, 24, 4)]
    assert all(sorted(turn) == ["b0", "b1", "b2", "b3"] for turn in turns)
    assert len({tuple(turn) for turn in turns}) > 1  # shuffled


def test_every_base_is_trained_where_everybody_affords_one_only() -> None:
    aggregator = weak([1] * 4)
    assert sorted(item.model for item in aggregator.assign(1, np.arange(1, 5))) == ["b0", "b1", "b2", "b3"]
    rich = weak([4] * 3)
    assert Counter(item.model for item in rich.assign(1, np.arange(1, 4))) == dict.fromkeys(["b0", "b1", "b2", "b3"], 3)


def test_a_base_becomes_the_mean_of_its_clients_by_samples_and_others_stay() -> None:
    aggregator = weak([2, 2, 2])
    start = pool_states(aggregator)
    items = aggregator.assign(1, np.array([1, 3]))
    updates = updates_for(aggregator, items)
    states = {(u.client, u.item.model): trained(start[u.item.model], 1, u.client, u.item.model) for u in updates}
    groups: dict[str, list[Any]] = {}
    for (client, key), state in states.items():
        groups.setdefault(key, []).append((state, None, aggregator.task.train_sizes[client - 1]))
    aggregator.aggregate(1, updates, {key: count_mean(start[key], group) for key, group in groups.items()})
    for key, before in start.items():
        expected = count_mean(before, groups[key]) if key in groups else before
        assert equal(aggregator.pool[key].state, expected)
    assert set(groups) < set(start)  # somebody stayed


def test_clients_are_served_nested_ensembles() -> None:
    plan = weak([1, 2, 4]).evaluation_plan()
    assert plan.serve == ["b0", "b0+b1", "b0+b1+b2+b3"]
    assert plan.named == {"global": "b0+b1+b2+b3"}


@pytest.mark.parametrize("r", [0, -1, 0.3, 2, float("nan")])
def test_a_width_that_does_not_split_is_refused(r: float) -> None:
    with pytest.raises(UserError, match=r"splitmix.r is 0.001, which makes 1000 base nets; 128 is the most"):
        SplitMixParams(r=0.001)
    with pytest.raises(UserError, match=r"splitmix.r is .*one over a whole number"):
        SplitMixParams(r=r)


def test_the_samplers_place_is_kept() -> None:
    unbroken, resumed = weak([2] * 3), weak([2] * 3)
    unbroken.assign(1, np.arange(1, 4))
    resumed.load_state(*json.loads(json.dumps(unbroken.state())))
    assert resumed.assign(2, np.arange(1, 4)) == unbroken.assign(2, np.arange(1, 4))


JOB = {"method": "splitmix", "model": "cnn_small", "local_steps": 1, "rounds": 3, "splitmix.r": 0.25}


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})
    return result(job_file.parent / "logs" / name / "logs")


@pytest.fixture
def budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven clients that afford 1, 2, 3, 4, 4, 2 and 1 bases."""
    base = models.resized(FULL, {"conv1": 4, "conv2": 8, "linear1": 7})
    macs = models.cost(base).forward_macs * np.array([1, 2, 3, 4, 4, 2, 1], dtype=np.float64)
    monkeypatch.setattr(runtime, "device_capacities", lambda *_, **__: macs)


@pytest.mark.parametrize("model", ["cnn_small", "nasbench201_base"])
def test_one_base_of_full_width_is_fedavg_bit_for_bit(job_file: Path, model: str) -> None:
    keys = {"model": model, "rounds": 2, "bn_statistics": "federated"}
    mixed = run(job_file, "mixed", **{"splitmix.r": 1.0}, **keys)
    plain = run(job_file, "plain", method="fedavg", **keys)
    for rounds in (mixed["rounds"], plain["rounds"]):
        for entry in rounds:
            for name in ("assignments", "cohort_sizes"):
                entry.pop(name)
            (entry.get("evaluation") or {}).pop("serve", None)
    assert json.loads(json.dumps(mixed["rounds"]).replace("b0", "global")) == plain["rounds"]
    (state,) = [state for _, state in mixed["models"].values()]
    (other,) = [state for _, state in plain["models"].values()]
    assert equal(state, other)


def test_a_job_counts_all_bases_and_serves_the_mean_of_their_logits(
    job_file: Path, tiny_femnist: Path, budgets: None
) -> None:
    job = run(job_file, "job", num_participants=7)
    for entry in job["rounds"]:
        assert entry["participants"] == list(range(1, 8))
        assert sum(entry["assignments"].values()) == 17
        assert set(entry["assignments"]) == {"b0", "b1", "b2", "b3"}
    nets = {}
    for key, (spec, state) in job["models"].items():
        nets[key] = models.build(spec).eval()
        nets[key].load_state_dict(state)
    cost = models.cost(job["models"]["b0"][0])
    # 5 samples and one step, or as many as the client has (clients 6 and 7: 3 and 1)
    sizes = dict(zip(range(1, 8), [1, 2, 3, 4, 4, 2, 1], strict=True))
    trained_samples = sum(bases * {6: 3, 7: 1}.get(client, 5) for client, bases in sizes.items())
    assert job["rounds"][0]["forward_macs"] == cost.forward_macs * trained_samples
    data = open_data_set(tiny_femnist, "femnist")
    evaluation = job["rounds"][-1]["evaluation"]
    for client, bases in sizes.items():
        rows = data.test_rows(client)
        assert evaluation["serve"][client - 1] == "+".join(f"b{number}" for number in range(bases))
        if len(rows):
            x, y = data.tensors(rows)
            with torch.no_grad():
                logits = torch.stack([nets[f"b{number}"](x) for number in range(bases)]).mean(0)
            loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum")
            assert evaluation["columns"][2][client - 1] == pytest.approx(float(loss), rel=1e-5)


def test_a_resumed_job_equals_an_unbroken_one(job_file: Path, budgets: None) -> None:
    keys = {"rounds": 4, "eval_interval": 1, "model": "nasbench201_base"}
    unbroken = run(job_file, "unbroken", **keys)
    run(job_file, "broken", **{**keys, "rounds": 2})
    assert_equal(unbroken, run(job_file, "broken", **keys, resume=True))
