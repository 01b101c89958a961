"""SPIDER: steps of both networks, shrinking, what clients keep and are served, whole jobs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import bench_of, client_settings
from job_results import assert_equal, result, run_job
from server.test_jobs import in_process
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.core.types import Update, WorkItem
from fedscale_ext.method import GLOBAL
from fedscale_ext.methods.search.alive_operators import alive_ops, everything, size_rows
from fedscale_ext.methods.search.spider import ALIVE, Local, SpiderAggregator, SpiderClient
from fedscale_ext.models.supernet.family import mixed
from fedscale_ext.server.method_base.method_traits import untrained_weights
from fedscale_ext.tasks.answers.update_checks import Rejected
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.transport import wire
from fedscale_ext.util.macs import MacCounter
from methods.harness import samples, server
from methods.small_space import spec_of, written

SHAPE = (1, 16, 16)


@pytest.fixture
def spider(tmp_path: Path) -> Any:
    def make(**keys: Any) -> Any:
        aggregator = server(SpiderAggregator, "spider", shape=SHAPE, **{"model": str(written(tmp_path)), **keys})
        aggregator.log_dir = tmp_path
        aggregator.client_tensors_by_kind = {kind.kind: kind for kind in aggregator.client_tensors()}
        return aggregator

    return make


def network(tmp_path: Path, seed: int = 3) -> tuple[models.ModelSpec, torch.nn.Module]:
    spec = mixed(spec_of(SHAPE, 5, tmp_path), "equal")
    module = models.build(spec).double()
    module.load_state_dict(models.initial_state(spec, seed))
    return spec, module


def settings(state: dict[str, Any] | None = None, shrink: str | None = None, **changes: Any) -> ClientConfig:
    objective = {"lambda": changes.pop("pull", 0.3), "shrink": shrink}
    return client_settings(
        spider=objective, client_state=state or {}, held_out=0.25, **{"local_steps": 2, "batch_size": 16, **changes}
    )


def state_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_both_networks_step_and_the_local_one_is_pulled(tmp_path: Path, clip_norm: float | None) -> None:
    spec, module = network(tmp_path)
    alive = everything(spec["ops"])
    alive[0, 2] = alive[1, [0, 3]] = False
    local = network(tmp_path, 9)[1]
    handed, begin = state_of(module), state_of(local)
    conf, data = settings({**begin, ALIVE: torch.from_numpy(alive)}, clip_norm=clip_norm), samples(8, shape=SHAPE)
    result = SpiderClient(conf, bench_of(spec)).train(data, module, conf)
    rows = torch.from_numpy(hold_out(8, 0.25, conf.seed, conf.client_id)[0])
    twin = network(tmp_path)[1]
    for net, pull in ((twin, 0.0), (local, 0.3)):
        net.train()
        if pull:
            net.hold(alive_ops(spec["ops"], alive))
        parameters = dict(net.named_parameters())
        sgd = torch.optim.SGD(parameters.values(), lr=0.05, momentum=0.9, weight_decay=5e-4)
        for _ in range(2):
            sgd.zero_grad()
            loss = functional.cross_entropy(net(data.x[rows]), data.y[rows])
            loss = loss + sum(pull / 2 * (p - handed[name]).square().sum() for name, p in parameters.items())
            loss.backward()
            if clip_norm:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip_norm)
            sgd.step()
    for name, tensor in twin.state_dict().items():
        torch.testing.assert_close(result["update_weight"][name], tensor, atol=1e-10, rtol=1e-8)
    local_state = local.state_dict()
    assert 0 < len(local_state) < len(begin)
    for name, tensor in begin.items():  # what the client dropped stays as it was
        torch.testing.assert_close(result["client_state"][name], local_state.get(name, tensor), atol=1e-10, rtol=1e-8)
    assert torch.equal(result["client_state"][ALIVE], torch.from_numpy(alive))


@pytest.mark.parametrize("how", ["layer", "operator"])
def test_what_least_is_lost_without_goes(tmp_path: Path, how: str) -> None:
    spec, module = network(tmp_path)
    local = Local(module, spec["ops"], state_of(module), everything(spec["ops"]))
    local.alive[1, 1:] = False  # layer 0 has the only choice
    data = samples(12, shape=SHAPE)
    scores = {}
    for column in range(4):
        without = local.alive.copy()
        without[0, column] = False
        module.train().hold(alive_ops(spec["ops"], without))  # type: ignore[operator]
        with torch.no_grad():
            module.load_state_dict({name: local.state[name] for name in module.state_dict()})
            logits = module(data.x)
        scores[column] = (int((logits.argmax(1) == data.y).sum()), -float(functional.cross_entropy(logits, data.y)))
    before = {name: tensor.clone() for name, tensor in local.state.items()}
    local.shrink(how, data.x, data.y, 12, np.random.default_rng(1))
    expected = everything(spec["ops"])
    expected[1, 1:] = False
    if how == "operator":
        expected[0, max(scores, key=lambda column: scores[column])] = False
    else:
        expected[0] = [column == min(scores, key=lambda column: scores[column]) for column in range(4)]
    assert (local.alive == expected).all()
    assert all(torch.equal(tensor, before[name]) for name, tensor in local.state.items())
    if how == "layer":
        local.shrink(how, data.x, data.y, 12, np.random.default_rng(1))  # nothing is left to decide
        assert (local.alive == expected).all()


def test_a_client_begins_with_the_global_network_and_shrinks_when_told(tmp_path: Path) -> None:
    spec, module = network(tmp_path)
    conf = settings(shrink="layer", local_steps=1)
    result = SpiderClient(conf, bench_of(spec)).train(samples(8, shape=SHAPE), module, conf)
    assert sorted(result["client_state"][ALIVE].sum(1).tolist()) == [1, 4]
    assert set(module.state_dict()) == set(models.layout(spec))  # the resident is the global one again
    alone = settings(shrink="layer", local_steps=1)
    single = SpiderClient(alone, bench_of(spec)).train(samples(1, shape=SHAPE), network(tmp_path)[1], alone)
    assert bool(single["client_state"][ALIVE].all())  # nothing to validate with


def test_texts_have_local_networks_too() -> None:
    spec = mixed(models.named_spec("rnn", (1, 1, 5), 5), "equal")
    module = models.build(spec)
    module.load_state_dict(models.initial_state(spec, 3))
    x = torch.randint(0, 90, (8, 1, 1, 5), generator=torch.Generator().manual_seed(1)).float()
    other = models.initial_state(spec, 4)
    local = Local(module, spec["ops"], other, everything(spec["ops"]))
    output = local.run(local.hold(local.alive), x)
    twin = models.build(spec)
    twin.load_state_dict(other)
    torch.testing.assert_close(output, twin(x))


def test_a_client_is_served_its_local_network(tmp_path: Path) -> None:
    spec, module = network(tmp_path)
    other = network(tmp_path, 9)[1]
    alive = everything(spec["ops"])
    alive[:, 1:] = False
    conf = settings({**state_of(other), ALIVE: torch.from_numpy(alive)})
    SpiderClient(conf, bench_of(spec)).load_personal_model(module, conf)
    other.hold(alive_ops(spec["ops"], alive))  # type: ignore[operator]
    torch.testing.assert_close(module.eval()(samples(3, shape=SHAPE).x), other.eval()(samples(3, shape=SHAPE).x))
    fresh = network(tmp_path)[1]
    SpiderClient(settings(), bench_of(spec)).load_personal_model(fresh, settings())
    torch.testing.assert_close(
        fresh.eval()(samples(3, shape=SHAPE).x), network(tmp_path)[1].eval()(samples(3, shape=SHAPE).x)
    )
    assert untrained_weights(SpiderAggregator) == "the weights are those of the global model"


def test_when_networks_shrink(spider: Any) -> None:
    aggregator = spider(proj_start=2, proj_recovery=3)
    shrinks = [aggregator.assign(round, np.array([1]))[0].objective["spider"]["shrink"] for round in range(1, 9)]
    assert shrinks == [None, "layer", None, None, "layer", None, None, "layer"]
    (item,) = aggregator.assign(1, np.array([2]))
    assert (item.compute_fraction, item.forward_fraction) == (2.0, 0.0) and item.overrides["held_out"] == 0.2
    assert aggregator.evaluation_plan().serve == ["global@own"] * 6


def macs(aggregator: Any, item: WorkItem) -> tuple[float, float]:
    """MACs of a client's round as a record counts them: of its forward passes, and of everything."""
    cost, seen = aggregator.pool[GLOBAL].cost, float(aggregator.task.step_sizes(item.client, item.overrides).sum())
    passed = item.forward_fraction * cost.forward_macs
    return (
        seen * (item.compute_fraction * cost.forward_macs + passed),
        seen * (item.compute_fraction * cost.training_macs + passed),
    )


def computed(
    aggregator: Any, item: WorkItem, client_state: dict[str, torch.Tensor]
) -> tuple[float, dict[str, torch.Tensor]]:
    """MACs that a client really computes for an item, and the state that it returns."""
    spec = aggregator.pool[GLOBAL].spec
    module = models.build(spec)
    module.load_state_dict(aggregator.pool[GLOBAL].state)
    conf = client_settings(
        item.client, **item.objective, **item.overrides, local_steps=2, seed=aggregator.seed, client_state=client_state
    )
    counter = MacCounter()
    generator = torch.Generator().manual_seed(item.client)
    count = int(aggregator.task.train_sizes[item.client - 1])
    data = ClientSamples(torch.randn(count, *SHAPE, generator=generator), torch.arange(count) % 5)
    with counter.counting():
        result = SpiderClient(conf, bench_of(spec)).train(data, module, conf)
    return float(counter.read() or 0), result["client_state"]


@pytest.mark.parametrize("how", ["layer", "operator"])
def test_macs_are_those_that_the_client_computes(spider: Any, how: str) -> None:
    aggregator = spider(proj_start=2, proj_recovery=1, shrink=how)
    client_state: dict[str, torch.Tensor] = {}
    sizes = []
    for round in (1, 2, 3):
        (item,) = aggregator.assign(round, np.array([3]))
        before = aggregator.local.alive[2].copy()
        real, client_state = computed(aggregator, item, client_state)
        aggregator.local.take(round, item, client_state)
        update = Update(item, 30, 10, 2, 1.0, 1.0)
        done = aggregator.work_done(update)
        forward, training = macs(aggregator, done)
        assert training == pytest.approx(real, rel=1e-12)
        # both networks' steps pass their samples forward, and 6 samples pass each candidate
        alive, cost = aggregator.local.alive[2], aggregator.pool[GLOBAL].cost
        operators = [aggregator.tables.macs[before], aggregator.tables.macs[alive]]
        expected = 10 * (cost.forward_macs + aggregator.tables.fixed_macs + operators[1].sum())
        if round > 1:
            layer = int(np.flatnonzero((before != alive).any(1))[0])
            sums = operators[0].sum() - aggregator.tables.macs[layer][before[layer]]
            expected += 6 * float((aggregator.tables.fixed_macs + sums).sum())
        assert forward == pytest.approx(expected, rel=1e-12)
        planned = macs(aggregator, item)
        assert planned == pytest.approx((forward, training)) if round == 1 else planned[1] > training
        sizes.append(aggregator.personal_bytes()[2])
    assert sizes[0] > sizes[1] > sizes[2] and (aggregator.local.alive[2] < aggregator.local.alive[0]).any()


def test_before_a_round_the_passes_count_as_they_will_be(spider: Any) -> None:
    aggregator = spider(proj_start=1, proj_recovery=1)
    for client in range(1, 7):
        (item,) = aggregator.assign(1, np.array([client]))
        _, client_state = computed(aggregator, item, {})
        alive = client_state[ALIVE].numpy()
        layer = int(np.flatnonzero(~alive.all(1))[0])
        whole, held = aggregator.pool[GLOBAL].cost.forward_macs, -(-client * 10 // 5)
        candidates = 4 * whole - aggregator.tables.macs[layer].sum()
        assert macs(aggregator, item)[0] == pytest.approx(2 * 10 * whole + held * candidates)


def test_clients_without_validation_samples_or_choice_pass_none(spider: Any) -> None:
    aggregator = spider(proj_start=1, proj_recovery=1)
    aggregator.task.train_sizes[0] = 1
    aggregator.local.alive[1, :, 1:] = False
    alone, settled = aggregator.assign(1, np.array([1, 2]))
    assert (alone.compute_fraction, alone.forward_fraction) == (2.0, 0.0)
    cost, conv1 = aggregator.pool[GLOBAL].cost, aggregator.tables.fixed_macs + aggregator.tables.macs[:, 0].sum()
    assert macs(aggregator, settled)[0] == pytest.approx(10 * (cost.forward_macs + conv1))


def test_clients_store_the_operators_that_are_left(spider: Any, tmp_path: Path) -> None:
    aggregator = spider()
    aggregator.local.alive[1, :, 1:] = False
    left = models.build(aggregator.pool[GLOBAL].spec.replace(ops=(("conv1",), ("conv1",))))
    expected = sum(tensor.nbytes for tensor in left.state_dict().values())
    whole = aggregator.pool[GLOBAL].cost.bytes
    assert aggregator.personal_bytes() == [whole, expected, whole, whole, whole, whole] and expected < whole
    rows = {row["value"]: row for row in aggregator.results()["local_networks"]}
    assert list(rows) == ["least", "mean", "most"]
    assert rows["least"]["mb"] == expected / 1e6 and rows["most"]["mb"] == whole / 1e6
    assert rows["mean"]["mb"] == pytest.approx((expected + 5 * whole) / 6e6)
    assert rows["most"]["macs"] == aggregator.pool[GLOBAL].cost.forward_macs


def test_each_column_of_local_networks_has_its_extremes() -> None:
    """The network of the fewest bytes need not be that of the fewest MACs."""
    rows = size_rows([Cost(40, 120, 1, 4_000_000), Cost(20, 60, 3, 12_000_000)])
    assert rows == [
        {"value": "least", "macs": 20.0, "parameters": 1.0, "mb": 4.0},
        {"value": "mean", "macs": 30.0, "parameters": 2.0, "mb": 8.0},
        {"value": "most", "macs": 40.0, "parameters": 3.0, "mb": 12.0},
    ]


def test_a_jobs_record_has_the_macs_that_clients_compute(
    job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: dict[int, int] = {}
    train = SpiderClient.train

    def counted(self: SpiderClient, data: ClientSamples, model: torch.nn.Module, conf: ClientConfig) -> Any:
        counter = MacCounter()
        with counter.counting():
            result = train(self, data, model, conf)
        if isinstance(conf.round, int):
            real[conf.round] = real.get(conf.round, 0) + int(counter.read() or 0)
        return result

    monkeypatch.setattr(SpiderClient, "train", counted)
    keys: dict[str, Any] = {
        "method": "spider", "model": str(written(tmp_path)), "spider.proj_start": 2, "spider.proj_recovery": 1,
    }  # fmt: skip
    rounds = run_job(job_file, "counted", True, **keys, rounds=3)["rounds"]
    assert [line["training_macs"] for line in rounds] == pytest.approx([real[number] for number in (1, 2, 3)])
    summary = json.loads((job_file.parent / "logs" / "counted" / "logs" / "summary.json").read_text())
    assert summary["cost"]["mean_model_mb"] < summary["models"][0]["cost"]["bytes"] / 1e6


def test_what_clients_hand_back_is_checked_and_resumed(spider: Any) -> None:
    aggregator = spider()
    (item,) = aggregator.assign(1, np.array([2]))
    client_state = {**aggregator.pool[GLOBAL].state, ALIVE: torch.from_numpy(aggregator.tables.held.copy())}
    client_state[ALIVE][0, 1:] = False
    section = wire.unpack(wire.pack({}, {"own": wire.tensors_to_bytes(client_state)}))[1]["own"]
    aggregator.local.take(1, item, aggregator.local.checked(item, section))
    aggregator.local.end_round()
    assert aggregator.local.alive[1].sum() == 5 and aggregator.local.alive[0].sum() == 8
    for wrong in (aggregator.tables.held.copy(), np.zeros_like(aggregator.tables.held)):
        bad = wire.unpack(
            wire.pack({}, {"own": wire.tensors_to_bytes({**client_state, ALIVE: torch.from_numpy(wrong)})})
        )[1]
        with pytest.raises(Rejected, match="operators cannot be"):
            aggregator.local.checked(item, bad["own"])
    tensors, data = aggregator.local.state()
    again = spider()
    again.local.load_state(tensors, data)
    assert (again.local.alive == aggregator.local.alive).all()
    assert torch.equal(again.local.outgoing(item)[ALIVE], client_state[ALIVE])


@pytest.mark.parametrize(
    ("keys", "notices"),
    [
        (
            {"proj_start": 5},
            ["rounds is 4: local networks shrink from round 5 on, so this job serves whole supernets"],
        ),
        (
            {"proj_start": 4},
            ["rounds is 4: local networks shrink in 1 round, and a search takes 2, so none ends with a single path"],
        ),
        ({"proj_start": 1, "proj_recovery": 3}, []),
        (
            {"proj_start": 1, "proj_recovery": 1, "shrink": "operator"},
            ["rounds is 4: local networks shrink in 4 rounds, and a search takes 6, so none ends with a single path"],
        ),
    ],
)
def test_a_job_too_short_for_its_search_says_so(spider: Any, keys: dict[str, Any], notices: list[str]) -> None:
    assert list(spider(rounds=4, **keys).notices) == notices


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"lambda_local": -1}, "at least 0"),
        ({"proj_start": 0}, "at least 1"),
        ({"val_ratio": 0}, "above 0"),
        ({"shrink": "all"}, "spider.shrink"),
        ({"model": "cnn_small"}, "needs a supernet"),
    ],
)
def test_bad_input_is_one_sentence(spider: Any, keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        spider(**keys)


def test_jobs_are_the_same_whoever_does_them_and_resume(job_file: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "method": "spider", "model": str(written(tmp_path)), "spider.proj_start": 1, "spider.proj_recovery": 1,
        "spider.shrink": "operator", "eval_interval": 1, "num_participants": 6, "record_internals": True,
    }  # fmt: skip
    there = in_process(job_file, job_name="there", **keys, rounds=3, num_executors=2)
    fedscale_ext.run(job_file, job_name="here", **keys, rounds=2, num_executors=1)
    fedscale_ext.run(job_file, job_name="here", **keys, rounds=3, resume=True)
    assert_equal(result(job_file.parent / "logs" / "here" / "logs"), there)
    last = there["rounds"][-1]
    assert not last["failed"] and set(last["evaluation"]["named"]) == {"global"}
    lines = (job_file.parent / "logs" / "there" / "logs" / "internals.jsonl").read_text()
    assert '"operators"' in lines
    fedscale_ext.run(job_file, job_name="tuned", **{**keys, "personalise_epochs": 1})
    assert result(job_file.parent / "logs" / "tuned" / "logs")["rounds"][-1]["personalised"] is not None
