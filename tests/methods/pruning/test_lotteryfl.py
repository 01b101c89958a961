"""LotteryFL: tickets, masked training, the masked mean, personal models."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from job_results import assert_equal, result
from server.test_jobs import command
from torch.func import functional_call
from torch.nn import functional

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.job_config import make_config
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.local_steps import hold_out, trained_on
from fedscale_ext.data.store import open_data_set
from fedscale_ext.methods.pruning import masks
from fedscale_ext.methods.pruning.lotteryfl import LotteryClient, LotteryFLAggregator
from fedscale_ext.metrics.job_folder.model_files import load_model
from fedscale_ext.models.stacked.network import stacked
from fedscale_ext.server.grpc_server import Coordinator
from fedscale_ext.server.method_base.requirements import check_local_training
from fedscale_ext.submodels import narrowed, rate_of
from fedscale_ext.tasks.client_files import ClientFiles
from fedscale_ext.training.resident import Cohort
from fedscale_ext.training.samples import ClientSamples
from fedscale_ext.util.tensor_files import read_tensors
from methods.harness import SHAPE, judged_right, samples, server, trained, updates_for

State = dict[str, torch.Tensor]
SPEC = models.named_spec("nasbench201_base", SHAPE, 5)
NAMES = models.parameter_names(SPEC)
TICKET = {"threshold": 0.5, "target": 0.5, "step": 0.1}


def network(seed: int = 7) -> torch.nn.Module:
    module = models.build(SPEC).double()
    module.load_state_dict(models.initial_state(SPEC, seed))  # another start than the job's theta_0, which has seed 1
    for name, buffer in module.named_buffers():
        if name.endswith("running_mean"):
            buffer.fill_(0.3)
    return module


def drawn_mask(seed: int, share: float = 0.7) -> State:
    generator = torch.Generator().manual_seed(seed)
    weights = masks.prunable(dict(network().named_parameters()))
    return {name: torch.rand(weight.shape, generator=generator) < share for name, weight in weights.items()}


def conf(client: int = 3, mask: State | None = None, **changes: Any) -> ClientConfig:
    state: State = {} if mask is None else masks.pack(mask)
    values = {"client_state": state, "test_bsz": 4, "model_key": "global", "held_out": 0.25, "ticket": TICKET}
    return client_settings(client, **{**values, **changes})


def client(settings: ClientConfig, module_of: Any = None) -> LotteryClient:
    return LotteryClient(settings, SimpleNamespace(spec=lambda key: SPEC, module=module_of))  # type: ignore[arg-type]


def start(model: torch.nn.Module) -> State:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def known(data: ClientSamples, mask: State, client: int = 3) -> ClientSamples:
    """The same samples with labels that the masked global model gets right."""
    module = network()
    masks.apply(mask, dict(module.named_parameters()))
    return judged_right(module, data, conf(client))


def test_a_good_model_is_pruned_and_rewound() -> None:
    mask = drawn_mask(1)
    module = network()
    handed, settings = start(module), conf(mask=mask)
    trains, _ = client(settings).start_masked(known(samples(12), mask), module, settings)
    expected = masks.pruned(mask, handed, 0.1)
    theta, after = models.initial_state(SPEC, 1), start(module)
    assert masks.survivors(expected) < masks.survivors(mask)
    for name in NAMES:
        if name in mask:
            assert torch.equal(trains[name], expected[name])
            assert torch.equal(after[name], torch.where(expected[name], theta[name].double(), 0.0))
        else:
            assert torch.equal(after[name], theta[name].double())
    for name in set(after) - set(NAMES):
        assert torch.equal(after[name], handed[name])


@pytest.mark.parametrize(("known_share", "ticket"), [(0.5, {}), (1.0, {"target": 0.75}), (0.25, {"threshold": 0.3})])
def test_a_poor_model_or_a_small_ticket_is_not(known_share: float, ticket: dict[str, float]) -> None:
    mask, data = drawn_mask(1, 0.7), samples(16)
    right = known(data, mask)
    settings, module = conf(mask=mask, ticket={**TICKET, **ticket}), network()
    _, validation = hold_out(16, 0.25, settings.seed, settings.client_id)
    wrong = validation[int(known_share * 4) :]
    right.y[wrong] = (right.y[wrong] + 1) % 5
    handed = start(module)
    trains, _ = client(settings).start_masked(right, module, settings)
    for name, tensor in start(module).items():
        whole = handed[name]
        assert torch.equal(tensor, torch.where(mask[name], whole, 0.0) if name in mask else whole)
        assert name not in mask or torch.equal(trains[name], mask[name])


def test_the_servers_running_statistics_do_not_judge_and_stay() -> None:
    """They are means over other networks, or re-estimated when models are tested: pruning must not depend on that."""
    data, settings, accuracies = samples(12), conf(mask=drawn_mask(1, 0.7)), []
    for shift in (0.0, 3.0):
        module = network()
        for part in module.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.running_mean += shift  # type: ignore[operator]
        before = start(module)
        accuracies.append(client(settings).accuracy(data, module, settings))
        assert all(torch.equal(tensor, before[name]) for name, tensor in start(module).items())
    assert accuracies[0] == accuracies[1]
    assert client(settings).accuracy(known(data, {}), network(), settings) == 1.0


def test_a_client_of_one_sample_has_nothing_to_validate_with() -> None:
    settings, module = conf(ticket={**TICKET, "threshold": 0.0}), network()
    trains, _ = client(settings).start_masked(known(samples(1), {}), module, settings)
    assert all(bool(one.all()) for one in trains.values())


# gradients that are zero but for rounding (before BatchNorm) must not be blown up to steps: hence eps
ADAM = {"client_optimizer": "adam", "learning_rate": 0.01, "adam_eps": 1e-3}


@pytest.mark.parametrize("keys", [{}, {"clip_norm": 0.1}, ADAM])
def test_pruned_weights_stay_zero_under_momentum_and_decay(keys: dict[str, Any]) -> None:
    """Against torch's optimisers on the function w -> loss(w * m)."""
    mask, data = drawn_mask(1), samples(8)
    settings = conf(mask=mask, ticket={**TICKET, "threshold": 0.99}, local_steps=4, batch_size=9, **keys)
    module, other = network(), network().train()
    result = client(settings).train(data, module, settings)
    rows, validation = hold_out(8, 0.25, settings.seed, settings.client_id)
    assert len(validation) == 2 and sorted([*rows, *validation]) == list(range(8))
    parameters = dict(other.named_parameters())
    masks.apply(mask, parameters)
    adam = settings.client_optimizer == "adam"
    kind = partial(torch.optim.Adam, eps=1e-3) if adam else partial(torch.optim.SGD, momentum=settings.client_momentum)
    optimizer = kind(other.parameters(), lr=settings.learning_rate, weight_decay=settings.client_weight_decay)
    for _ in range(4):
        optimizer.zero_grad()
        masked = {name: tensor * mask[name] if name in mask else tensor for name, tensor in parameters.items()}
        loss = functional.cross_entropy(functional_call(other, masked, (data.x[rows],)), data.y[rows])
        loss.backward()
        if settings.clip_norm:
            torch.nn.utils.clip_grad_norm_(other.parameters(), settings.clip_norm)
        optimizer.step()
    for name, parameter in parameters.items():
        torch.testing.assert_close(result["update_weight"][name], parameter.detach(), atol=1e-10, rtol=1e-8)
    for name, one in mask.items():
        assert bool((result["update_weight"][name][~one] == 0).all())
        assert torch.equal(masks.unpack(result["client_state"], parameters)[name], one)


@pytest.mark.parametrize("keys", [{}, {"clip_norm": 0.2}, {"local_epochs": 2}])
def test_side_by_side_is_one_after_another(keys: dict[str, Any]) -> None:
    counts, drawn = [20, 9, 7], [drawn_mask(5), drawn_mask(6), {}]
    data = [samples(count, index) for index, count in enumerate(counts)]
    data[1] = known(data[1], drawn[1], 1)  # this one prunes and rewinds

    def settings(index: int) -> ClientConfig:
        steps = 2 * -(-trained_on(counts[index], 0.25) // 5) if "local_epochs" in keys else 10 - index
        return conf(index, drawn[index], **{"local_steps": steps, **keys})

    module = network()
    begin = start(module)
    stack = stacked(network(), SHAPE)
    assert stack is not None
    cohort = Cohort(stack, module, SHAPE, 3, torch.device("cpu"), channels_last=True)
    cohort.restore(begin)
    confs = [settings(index) for index in range(3)]
    together = client(confs[0], lambda key: network()).train_cohort(data, cohort, confs)
    states = cohort.trained([one.local_steps for one in confs])
    tickets = []
    for index, other in enumerate(together):
        config = settings(index)
        alone = client(config).train(data[index], network(), config)
        assert isinstance(other, dict) and other["trained_size"] == alone["trained_size"] and other["success"]
        assert all(torch.equal(one, alone["client_state"][name]) for name, one in other["client_state"].items())
        assert abs(other["moving_loss"] - alone["moving_loss"]) < 1e-9
        tickets.append(masks.unpack(alone["client_state"], masks.prunable(dict(network().named_parameters()))))
        for name, tensor in alone["update_weight"].items():
            assert float((tensor - states[name][index]).abs().max()) < 1e-9
            if name in tickets[index]:
                assert bool((states[name][index][~tickets[index][name]] == 0).all())
    assert masks.survivors(tickets[1]) < masks.survivors(drawn[1])


@pytest.mark.parametrize("weighted", [False, True])
def test_the_servers_mean_is_over_the_masks_that_cover(tmp_path: Path, weighted: bool) -> None:
    aggregator = server(LotteryFLAggregator, "lotteryfl", weighted=weighted)
    files = ClientFiles(tmp_path, 6)
    aggregator.client_masks = SimpleNamespace(files=files)
    old = {name: tensor.clone() for name, tensor in aggregator.pool["global"].state.items()}
    chosen = {number: drawn_mask(number, 0.4) for number in (1, 2, 4)}
    copies = {number: {name: one.clone() for name, one in mask.items()} for number, mask in chosen.items()}
    states, weights = {}, {}
    updates = updates_for(aggregator, aggregator.assign(1, np.array([1, 2, 4])))
    for update in updates:
        mask = chosen[update.client]
        states[update.client] = {name: torch.where(mask[name], tensor, 0.0) if name in mask else tensor
                                 for name, tensor in trained(old, update.client).items()}  # fmt: skip
        weights[update.client] = update.client * 10.0 if weighted else 1.0
        files.write(1, "global", update.client, masks.pack(mask))
        aggregator.collect(1, update, states[update.client])
    aggregator.aggregate(1, updates, {})
    new, name = aggregator.pool["global"].state, next(iter(chosen[1]))
    untouched = 0
    for index in np.ndindex(*old[name].shape):
        holders = [number for number in chosen if chosen[number][name][index]]
        expected = float(old[name][index])
        if holders:
            total = sum(weights[number] for number in holders)
            expected = sum(weights[number] * float(states[number][name][index]) for number in holders) / total
        untouched += not holders
        assert float(new[name][index]) == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert 0 < untouched < old[name].numel()
    bias = next(other for other in NAMES if other not in chosen[1])
    whole = sum(weights[number] * states[number][bias].double() for number in chosen) / sum(weights.values())
    torch.testing.assert_close(new[bias].double(), whole, atol=1e-6, rtol=1e-5)
    for number, mask in copies.items():  # nobody's mask was added to another's
        stored = masks.unpack(files.newest("global", number) or {}, old | {})
        assert all(torch.equal(stored[one], mask[one]) for one in mask)
        assert aggregator.left[number - 1] == masks.survivors(mask)
    assert aggregator.left[2] == aggregator._all


def test_traffic_counts_surviving_weights_and_a_bit_for_each() -> None:
    aggregator = server(LotteryFLAggregator, "lotteryfl")
    cost = aggregator.pool["global"].cost.bytes
    aggregator.left[1] -= 1000
    first, second = aggregator.assign(1, np.array([1, 2]))
    assert first.bytes == cost + -(-aggregator._all // 8) and second.bytes == first.bytes - 4000
    assert first.compute_fraction == second.compute_fraction == 1.0  # dense kernels compute zeros too


@pytest.mark.parametrize(("model", "passed"), [("nasbench201_base", 20), ("cnn_small", 2)])
def test_passes_over_validation_samples_count_until_the_ticket_is_drawn(model: str, passed: int) -> None:
    aggregator = server(LotteryFLAggregator, "lotteryfl", model=model, validation=0.1, target=0.5)
    (item,) = aggregator.assign(1, np.array([2]))  # has 20 samples
    seen = aggregator.task.step_sizes(2, item.overrides).sum()
    assert item.forward_fraction == pytest.approx(passed / seen)  # BatchNorm's statistics are measured on the others
    aggregator.left[1] = aggregator._all // 2
    assert aggregator.assign(1, np.array([2]))[0].forward_fraction == 0.0


JOB: dict[str, Any] = {
    "method": "lotteryfl", "model": "cnn_small", "num_participants": 6, "learning_rate": 0.05, "cohort_size": 2,
    "lotteryfl.threshold": 0.2, "eval_interval": 2,
}  # fmt: skip


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    return fedscale_ext.run(job_file, job_name=name, **{**JOB, **keys})


def folder(job_file: Path, name: str) -> Path:
    return job_file.parent / "logs" / name / "logs"


def test_a_job_resumes_bit_for_bit_and_serves_everybody_its_own_ticket(job_file: Path, tiny_femnist: Path) -> None:
    keys = {"rounds": 4, "checkpoint_interval": 2, "personalise_epochs": 1}
    summary = run(job_file, "job", **keys)
    here = folder(job_file, "job")
    unbroken = result(here)
    everyone, mean = summary["results"]["types"]
    assert (everyone["type"], everyone["clients"]) == ("global", 7)
    assert everyone["accuracy"] == pytest.approx(summary["accuracy"]["mean"]) == mean["accuracy"]
    assert everyone["one_way_mb"] == summary["models"][0]["cost"]["bytes"] * everyone["settled_round"] / 1e6
    left = read_tensors(here / "checkpoints" / "checkpoint-000004.safetensors")[0]["tensor.method/left"]
    assert left.min() < left.max()

    spec, state = load_model(here / "models" / "global.safetensors")
    data = open_data_set(str(tiny_femnist), "femnist", data_map_file=None, test_split=0.2, seed=1, input_shape=None)
    module = models.build(spec).eval()
    everybody: dict[str, list[float]] = {"all": [], "client_state": [], "tuned": []}
    for number in range(1, 8):
        x, y = data.tensors(data.test_rows(number))
        if not len(y):
            continue
        files = sorted((here / "client_state" / "global").glob(f"{number}-*.safetensors"))
        packed = read_tensors(files[-1])[0] if files else {}
        own_samples = ClientSamples(*data.tensors(data.train_rows(number)))
        settings = client_settings(
            number, round="personalise", client_state=packed, local_epochs=1, local_steps=-(-len(own_samples) // 5)
        )
        for kind, reached in everybody.items():
            module.load_state_dict(state)
            if kind == "client_state":
                client(settings).load_personal_model(module, settings)
                weights = masks.prunable(dict(module.named_parameters()))
                mask = masks.unpack(packed, weights)
                assert masks.survivors(mask) == int(left[number - 1])
                assert all(not weights[name][~one].any() for name, one in mask.items())
            elif kind == "tuned":
                client(settings).train(own_samples, module, settings)
                assert all(not weights[name][~one].any() for name, one in mask.items())
            reached.append(float((module.eval()(x).argmax(1) == y).double().mean()))
    for figures, kind in (("accuracy", "client_state"), ("personalised", "tuned")):
        accuracies = [value for value in summary[figures]["per_client"] if value is not None]
        assert accuracies == pytest.approx(everybody[kind])
    beside = summary["accuracy"]["named"]["global"]["per_client"]
    assert [value for value in beside if value is not None] == pytest.approx(everybody["all"])

    (here / "checkpoints" / "checkpoint-000004.safetensors").unlink()  # as if killed in round 4
    again = run(job_file, "job", resume=True, **keys)
    assert_equal(unbroken, result(here))
    assert again["personalised"]["per_client"] == summary["personalised"]["per_client"]
    assert len(list((here / "client_state" / "global").glob("*"))) <= 2 * 7  # what the two checkpoints need


def test_clients_may_begin_at_their_types_size(job_file: Path) -> None:
    keys = {"model": "nasbench201_base", "lotteryfl.param_ratio": [0.1, 1.0, 0.4], "lotteryfl.groups": [2, 2, 3],
            "lotteryfl.threshold": 0.99, "rounds": 2, "num_participants": 5, "record_internals": True,
            "test_around_training": True}  # fmt: skip
    summary = run(job_file, "types", **keys)
    shares = {"x0.1": 0.1, "x1": 1.0, "x0.4": 0.4}
    rows = {row["type"]: row for row in summary["results"]["types"]}
    assert [rows[key]["clients"] for key in shares] == [2, 2, 3]
    for key, share in shares.items():  # nobody is that accurate, so that nobody prunes
        assert rows[key]["kept_share"] == pytest.approx(share, rel=0.35)
    assert summary["before_training"]["per_client"] == summary["accuracy"]["per_client"]
    spec, state = load_model(folder(job_file, "types") / "models" / "global.safetensors")
    weights = masks.prunable({name: state[name] for name in models.parameter_names(spec)})
    for path in (folder(job_file, "types") / "client_state" / "global").glob("*"):
        survivors = masks.survivors(masks.unpack(read_tensors(path)[0], weights))
        every = sum(weight.numel() for weight in weights.values())
        assert any(abs(survivors / every - share) < 0.35 * share for share in shares.values())


def test_a_types_target_is_a_part_of_what_it_begins_with() -> None:
    aggregator = server(LotteryFLAggregator, "lotteryfl", param_ratio=[1.0, 0.1], groups=[3, 3], target=0.5)
    small = [aggregator.item_of(client) for client in range(1, 7) if aggregator.type_of[client - 1] == 1]
    assert len(small) == 3
    for item in small:
        left = int(aggregator.left[item.client - 1]) / aggregator._all
        assert (
            left < 0.2 and item.objective["ticket"]["target"] == pytest.approx(left / 2) and item.compute_fraction < 0.3
        )
        rate = rate_of(SPEC, 0.1 * models.cost(SPEC).parameters)
        part, every = models.cost(narrowed(SPEC, rate)), aggregator.pool["global"].cost
        assert item.training_fraction == pytest.approx(part.training_macs / every.training_macs)
        assert aggregator.download_bytes(item) < 0.5 * aggregator.pool["global"].cost.bytes
    whole = next(aggregator.item_of(client) for client in range(1, 7) if aggregator.type_of[client - 1] == 0)
    assert whole.objective["ticket"]["target"] == 0.5 and whole.compute_fraction == 1.0


@pytest.mark.parametrize(("ratio", "target"), [(0.25, 0.5), (0.1, 0.7), (0.4, 0.3)])
def test_a_client_at_its_target_stops(ratio: float, target: float) -> None:
    aggregator = server(
        LotteryFLAggregator, "lotteryfl", shape=(1, 28, 28), param_ratio=[0.9, ratio], groups=[3, 3], target=target
    )
    for client in range(1, 7):
        start, ticket = int(aggregator.first_left[client - 1]), aggregator.item_of(client).objective["ticket"]
        for left in range(start):
            stops = left / aggregator._all <= ticket["target"]
            assert stops == (10 * left <= round(10 * target) * start), (client, left)


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"param_ratio": [1.0, 0.4]}, "lotteryfl.param_ratio and lotteryfl.groups go together"),
    ({"param_ratio": [1.0, 0.4], "groups": [6]}, "lotteryfl.groups has 1 entries for 2 types"),
    ({"param_ratio": [1.0, 0.4], "groups": [3, 4]}, "adds up to 7; .* the 6 clients"),
    ({"param_ratio": [1.0, 0.0], "groups": [3, 3]}, "it must hold a share above 0"),
    ({"param_ratio": [1.0, 0.4], "groups": [7, -1]}, "lotteryfl.groups gives x0.4 -1 devices"),
    ({"param_ratio": [0.4, 0.4], "groups": [3, 3]}, "lotteryfl.param_ratio has 'x0.4' twice"),
])  # fmt: skip
def test_types_that_cannot_be_dealt(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        server(LotteryFLAggregator, "lotteryfl", **keys)


def test_masks_fit_into_messages(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(job_file, "plain", rounds=1, unit_size=4)
    spec, state = load_model(folder(job_file, "plain") / "models" / "global.safetensors")
    cost = models.cost(spec).bytes
    bits = sum(-(-weight.numel() // 8) for weight in masks.prunable(state).values())
    counts: list[int] = []
    make_unit = Coordinator.make_unit

    def noting(self: Any, event: str, *more: Any, **header: Any) -> Any:
        counts.append(len(header.get("clients", ())))
        return make_unit(self, event, *more, **header)

    monkeypatch.setattr(Coordinator, "make_unit", noting)
    monkeypatch.setattr("fedscale_ext.server.round.dispatcher._HEADERS", 2**20 - cost - 2 * bits)
    cut = run(job_file, "cut", rounds=1, max_message_mb=1, unit_size=4)
    assert cut["accuracy"]["per_client"] == plain["accuracy"]["per_client"]
    assert counts.count(2) >= 2 and max(counts) == 6, counts  # clients of an evaluation, two to a message
    monkeypatch.setattr("fedscale_ext.server.round.dispatcher._HEADERS", 2**20 - cost)
    with pytest.raises(UserError, match="raise max_message_mb"):
        run(job_file, "none", rounds=1, max_message_mb=1)


def test_executors_play_no_part(job_file: Path) -> None:
    keys = {**JOB, "unit_size": 1, "rounds": 3}
    run(job_file, "here", **keys)
    assert_equal(result(folder(job_file, "here")), command(job_file, "there", **keys, worker_ips="localhost:[4]"))


@pytest.mark.parametrize(
    ("key", "value"), [("threshold", 1.0), ("target", -0.1), ("step", 0.0), ("validation", 1.0), ("step", float("nan"))]
)
def test_bad_hyperparameters_are_refused(key: str, value: float) -> None:
    with pytest.raises(UserError, match=f"lotteryfl.{key} is .*; it must be"):
        server(LotteryFLAggregator, "lotteryfl", **{key: value})


@pytest.mark.parametrize(("key", "value"), [("control_variates", True), ("max_update_norm", 3.0)])
def test_what_reads_a_clients_change_as_its_training_is_refused(key: str, value: Any) -> None:
    config = make_config({}, {"method": "lotteryfl", key: value})
    with pytest.raises(
        UserError, match=f"{key} needs clients that .* lotteryfl starts clients from masked .*; remove {key}"
    ):
        check_local_training(config, LotteryFLAggregator)


@pytest.mark.parametrize("keys", [{}, {"param_ratio": (1.0, 0.25), "groups": (3, 3)}])
def test_a_job_in_which_nobody_pruned_says_so_at_its_end(keys: dict[str, Any]) -> None:
    aggregator = server(LotteryFLAggregator, "lotteryfl", **keys)
    assert aggregator.unfinished_notice() == (
        "no client has pruned: that takes an accuracy above 0.5, lotteryfl.threshold, on its validation samples"
    )
    aggregator.left[4] -= 1
    assert aggregator.unfinished_notice() is None
