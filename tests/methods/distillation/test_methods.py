"""What each method makes of logits: FedMD's mean, DS-FL's labels, FedGEMS's fusion, FedDF's students, Fed-ET's head."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.distillation.consensus import entropy_reduced, mean_logits
from fedscale_ext.methods.distillation.fedet import ensemble, head_of
from fedscale_ext.methods.distillation.fedgems import fuse
from fedscale_ext.methods.distillation.fitting import logits_of
from fedscale_ext.methods.distillation.losses import divergence, soft_cross_entropy
from fedscale_ext.methods.distillation.public_models import SERVER
from fedscale_ext.models.families.headed import body_of
from methods.harness import CLASSES, SHAPE, equal, means_of, pool_states, updates_for

from .public import PUBLIC, TYPES, logits_for, new_aggregator, play, samples

LENET = TYPES[1]


def said(clients: int, num_rows: int, round: int = 1) -> torch.Tensor:
    return torch.stack([logits_for(client + 1, num_rows, round) for client in range(clients)])


def test_fedmd_tells_the_mean_of_those_who_took_part(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedmd", tmp_path, samples=5)
    play(aggregator, 1, [2, 5])
    both = torch.stack([logits_for(client, 5) for client in (2, 5)])
    assert torch.equal(aggregator.target, mean_logits(both))


def test_fedmd_without_labels_does_not_begin_with_public_samples(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedmd", tmp_path, labels=False)
    assert any("whose classes are others" in event["message"] for event in aggregator.events)
    (item,) = play(aggregator, 1, [1])
    assert [phase["loss"] for phase in item.objective["public"]] == ["mae"] and item.overrides["local_epochs"] == 25


def test_dsfl_tells_sharper_labels_and_its_server_learns_them(tmp_path: Path) -> None:
    aggregator = new_aggregator("dsfl", tmp_path, labels=False, epochs=20, batch_size=4)
    before = aggregator.pool[SERVER].state
    play(aggregator, 1)
    assert torch.equal(aggregator.target, entropy_reduced(said(6, PUBLIC), 0.1))
    spec = aggregator.pool[SERVER].spec

    def apart(state: Any) -> float:
        return float(soft_cross_entropy(logits_of(spec, state, aggregator.public.x), aggregator.target).mean())

    assert spec == models.named_spec("cnn_small", SHAPE, CLASSES) and apart(aggregator.pool[SERVER].state) < apart(
        before
    )


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_fedgems_asks_the_right_ones(seed: int, clients: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    server_logits = torch.randn(6, CLASSES, generator=generator)
    others = torch.randn(clients, 6, CLASSES, generator=generator)
    labels = torch.randint(CLASSES, (6,), generator=generator)
    teacher, taught = fuse(server_logits, others, labels)
    for n in range(6):
        right = [client for client in range(clients) if others[client, n].argmax() == labels[n]]
        if server_logits[n].argmax() == labels[n]:
            assert taught[n] and torch.equal(teacher[n], server_logits[n])
        elif right:
            assert taught[n] and teacher[n].argmax() == labels[n]  # a mean of logits that all have it on top
            if len(right) == 1:
                torch.testing.assert_close(teacher[n], others[right[0], n])
        else:
            assert not taught[n]


def test_fedgems_weighs_a_sure_client_more() -> None:
    sure, vague = torch.tensor([0.0, 9.0, 0.0]), torch.tensor([0.9, 1.0, 0.0])
    teacher, _ = fuse(torch.tensor([[1.0, 0.0, 0.0]]), torch.stack([sure, vague])[:, None], torch.tensor([1]))
    assert 8.9 < teacher[0, 1] < 9.0 and 0.0 < teacher[0, 0] < 0.05


def test_fedgems_tells_what_its_server_says_after_learning(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgems", tmp_path, server_epochs=30, batch_size=4)
    server, public = aggregator.pool[SERVER], aggregator.public
    before = float((logits_of(server.spec, server.state, public.x).argmax(-1) == public.labels).double().mean())
    play(aggregator, 1)
    server = aggregator.pool[SERVER]
    assert torch.equal(aggregator.target, logits_of(server.spec, server.state, aggregator.public.x))
    assert aggregator._internals["server_right"] == before
    assert float((aggregator.target.argmax(-1) == aggregator.public.labels).double().mean()) > before


def test_labels_of_public_samples_travel_only_where_clients_learn_from_them(tmp_path: Path) -> None:
    for method, sent in (("fedmd", True), ("fedgems", True), ("dsfl", False)):
        aggregator = new_aggregator(method, tmp_path / method)
        x, labels = aggregator.public.x.nbytes, aggregator.public.labels.nbytes
        (item,) = aggregator.assign(1, np.array([2]))
        assert item.bytes == x + sent * labels
        assert ("labels" in aggregator.shared.tensors) is sent


def test_fedgems_needs_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fedgems needs labels of the public data, which are 12 samples of noise"):
        new_aggregator("fedgems", tmp_path, labels=False)


def test_feddf_brings_each_types_mean_nearer_to_the_ensemble(tmp_path: Path) -> None:
    aggregator = new_aggregator("feddf", tmp_path, labels=False, steps=60, patience=30, batch_size=4, lr=0.01)
    teacher = mean_logits(said(6, PUBLIC))
    items = aggregator.assign(1, np.arange(1, 7))
    means = means_of(aggregator, 1, updates_for(aggregator, items))
    play(aggregator, 1)
    for key in TYPES:
        spec = aggregator.pool[key].spec

        def apart(state: Any, spec: Any = spec) -> float:
            logits = logits_of(spec, state, aggregator.public.x)[aggregator.held_out]
            return float(divergence(logits, teacher[aggregator.held_out]).mean())

        assert apart(aggregator.pool[key].state) <= apart(means[key])  # on samples that it does not learn from
        assert aggregator._internals["distillation"][key]["steps"] >= 30
    assert aggregator.evaluation_plan().serve == [TYPES[0]] * 3 + [TYPES[1]] * 3


def test_feddf_without_steps_is_fedavg_by_type(tmp_path: Path) -> None:
    aggregator = new_aggregator("feddf", tmp_path, labels=False, steps=0)
    means = means_of(aggregator, 1, updates_for(aggregator, aggregator.assign(1, np.arange(1, 7))))
    play(aggregator, 1)
    assert all(equal(means[key], aggregator.pool[key].state) for key in TYPES)
    assert not aggregator._internals["diverged"]
    assert all(each["steps"] == 0 for each in aggregator._internals["distillation"].values())


def test_feddf_without_steps_holds_nothing_out(tmp_path: Path) -> None:
    aggregator = new_aggregator("feddf", tmp_path, labels=False, steps=0, validation=0.99)
    play(aggregator, 1)
    assert not aggregator._internals["diverged"]


def test_feddf_leaves_a_type_without_participants_alone(tmp_path: Path) -> None:
    aggregator = new_aggregator("feddf", tmp_path, steps=3, patience=3)
    before = pool_states(aggregator)
    play(aggregator, 1, [1, 2])
    assert equal(before[LENET], aggregator.pool[LENET].state) and not equal(
        before[TYPES[0]], aggregator.pool[TYPES[0]].state
    )


def test_devices_know_nothing_of_public_data_in_feddf_and_fedet(tmp_path: Path) -> None:
    for method in ("feddf", "fedet"):
        aggregator = new_aggregator(method, tmp_path, steps=2)
        for item in play(aggregator, 1):
            assert item.compute_fraction == 1.0 and not item.objective
            whole = aggregator.pool[item.model].cost.bytes
            assert aggregator.download_bytes(item) == aggregator.upload_bytes(item) == whole


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_fedet_follows_sure_models_and_hears_those_who_disagree(seed: int, clients: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(clients, 5, CLASSES, generator=generator)
    classes, others, anybody = ensemble(logits)
    variance = logits.double().var(-1, unbiased=False)
    mean = (logits.double() * variance[..., None]).sum(0) / variance.sum(0)[:, None]
    assert torch.equal(classes, mean.float().argmax(-1))
    for n in range(5):
        away = [client for client in range(clients) if logits[client, n].argmax() != classes[n]]
        assert bool(anybody[n]) == bool(away)
        if away:
            weights = variance[away, n] / variance[away, n].sum()
            torch.testing.assert_close(others[n], (logits[away, n].double() * weights[:, None]).sum(0).float())
        else:
            assert not others[n].any()


def test_fedet_shares_one_head(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedet", tmp_path, representation=6, steps=3)
    states = [aggregator.pool[key].state for key in (*TYPES, SERVER)]
    assert all(equal(head_of(states[0]), head_of(state)) for state in states)
    assert aggregator.pool[LENET].spec["width"] == 6 and body_of(aggregator.pool[LENET].spec)["num_classes"] == 6
    before = pool_states(aggregator)
    play(aggregator, 1, [1, 2, 3])
    trained = aggregator.pool[TYPES[0]].state
    assert equal(head_of(trained), head_of(aggregator.pool[SERVER].state)) and not equal(
        head_of(trained), head_of(states[0])
    )
    assert equal(before[LENET], aggregator.pool[LENET].state)  # nobody of it took part


def test_fedet_starts_its_server_with_the_clients_mean_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aggregator = new_aggregator("fedet", tmp_path, representation=6, steps=1, lr=1e-30)
    items = aggregator.assign(1, np.arange(1, 7))
    updates = updates_for(aggregator, items)
    means = means_of(aggregator, 1, updates)
    play(aggregator, 1)
    weight = {key: sum(10.0 * u.client for u in updates if u.item.model == key) for key in TYPES}
    expected = sum(weight[key] * means[key]["head.weight"].double() for key in TYPES) / sum(weight.values())
    torch.testing.assert_close(aggregator.pool[SERVER].state["head.weight"], expected.float())


def losses_of_the_server(aggregator: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the server's model is to learn in the next round, instead of learning it."""
    losses: list[Any] = []

    def train_server(round: int, state: Any, x: Any, loss: Any, how: Any) -> Any:
        losses.append(loss)
        return state

    monkeypatch.setattr(aggregator, "train_server", train_server)
    play(aggregator, 1)
    (loss,) = losses
    return loss


def log_p(logits: Any) -> Any:
    shifted = np.asarray(logits, dtype=np.float64)
    shifted = shifted - shifted.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


OUTPUT, AT = logits_for(99, 7), torch.tensor([11, 0, 5, 8, 3, 2, 7])


def test_fedets_server_learns_the_consensus_and_what_those_who_disagree_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = new_aggregator("fedet", tmp_path, representation=6, diversity=0.4)
    loss = losses_of_the_server(aggregator, monkeypatch)
    logits, expected, apart = said(6, PUBLIC).double().numpy(), [], 0
    for row, n in enumerate(AT.tolist()):
        variance = logits[:, n].var(1)
        consensus = (logits[:, n] * variance[:, None]).sum(0).argmax()
        away = logits[:, n].argmax(1) != consensus
        mine = log_p(OUTPUT[row])
        expected.append(-mine[consensus])
        if away.any():
            others = log_p((logits[away, n] * variance[away, None]).sum(0) / variance[away].sum())
            expected[-1] += 0.4 * (np.exp(others) * (others - mine)).sum()
            apart += 1
    assert apart >= 5
    np.testing.assert_allclose(loss(OUTPUT, AT).numpy(), expected, rtol=1e-5)


def test_fedgems_server_learns_labels_and_of_those_who_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregator = new_aggregator("fedgems", tmp_path, epsilon=0.3)
    server, labels = aggregator.pool[SERVER], aggregator.public.labels.tolist()
    server_logits = logits_of(server.spec, server.state, aggregator.public.x).numpy()
    loss = losses_of_the_server(aggregator, monkeypatch)
    logits, expected, kinds = said(6, PUBLIC).double().numpy(), [], set()
    for row, n in enumerate(AT.tolist()):
        mine = log_p(OUTPUT[row])
        expected.append(-0.3 * mine[labels[n]])
        able = logits[:, n].argmax(1) == labels[n]
        if server_logits[n].argmax() == labels[n]:
            kinds.add("itself")
            teacher = server_logits[n]
        elif able.any():
            kinds.add("clients")
            p = log_p(logits[able, n])
            weight = 1 / -(np.exp(p) * p).sum(1)
            teacher = (logits[able, n] * weight[:, None]).sum(0) / weight.sum()
        else:  # the mask: a teacher of zeros would pull towards equal probabilities
            kinds.add("nobody")
            continue
        teacher = log_p(teacher)
        expected[-1] += 0.7 * (np.exp(teacher) * (teacher - mine)).sum()
    assert kinds == {"itself", "clients", "nobody"}
    np.testing.assert_allclose(loss(OUTPUT, AT).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("method", ["dsfl", "fedgems", "fedet", "feddf"])
def test_models_that_diverge_on_public_samples_are_as_they_were(method: str, tmp_path: Path) -> None:
    quick: dict[str, dict[str, Any]] = {"fedet": {"steps": 9, "representation": 6}, "feddf": {"steps": 9}}
    aggregator = new_aggregator(method, tmp_path, lr=1e30, **quick.get(method, {}))
    items = aggregator.assign(1, np.arange(1, 7))
    means = means_of(aggregator, 1, updates_for(aggregator, items))
    before = pool_states(aggregator)
    play(aggregator, 1)
    if method == "feddf":
        expected = {**means}
    elif method == "fedet":  # its head is the clients' mean before it learns
        head = head_of(aggregator.pool[SERVER].state)
        assert not equal(head, head_of(before[SERVER])) and all(torch.isfinite(each).all() for each in head.values())
        expected = {key: {**state, **head} for key, state in {**means, SERVER: before[SERVER]}.items()}
    else:
        expected = {SERVER: before[SERVER]}
        assert torch.isfinite(aggregator.target).all()
    for key, state in expected.items():
        assert equal(aggregator.pool[key].state, state)
    diverged = TYPES if method == "feddf" else [SERVER]
    assert aggregator._internals["diverged"] == diverged
    (notice,) = [event["message"] for event in aggregator.events if "diverged" in event["message"]]
    assert notice == (
        f"round 1: models that diverged on public samples are as they were before these: {', '.join(diverged)}; "
        f"lower {method}.lr"
    )


@pytest.mark.parametrize(("method", "keys", "sentence"), [
    ("fedmd", {"samples": 0}, "fedmd.samples is 0; it must be at least 1"),
    ("fedmd", {"pretrain_epochs": -1}, "fedmd.pretrain_epochs is -1; it must be at least 0"),
    ("fedmd", {"digest_epoch": 1}, "no hyperparameter fedmd.digest_epoch; did you mean 'fedmd.digest_epochs'"),
    ("fedmd", {"types": []}, "a job of method fedmd lacks fedmd.types "),
    ("dsfl", {"temperature": 0.0}, "dsfl.temperature is 0.0; it must be above 0"),
    ("dsfl", {"lr": float("inf")}, "dsfl.lr is inf; it must be a finite number"),
    ("fedgems", {"epsilon": 1.5}, "fedgems.epsilon is 1.5; it must be from 0 to 1"),
    ("fedgems", {"server_epochs": 0}, "fedgems.server_epochs is 0; it must be at least 1"),
    ("feddf", {"validation": 1.0}, "feddf.validation is 1.0; it must be above 0 and below 1"),
    ("feddf", {"validation": 0.99}, "feddf.validation 0.99 of 12 public samples leaves fewer than two"),
    ("fedet", {"diversity": -0.1}, "fedet.diversity is -0.1; it must be at least 0"),
    ("fedet", {"representation": 0}, "fedet.representation is 0; it must be at least 1"),
])  # fmt: skip
def test_bad_input_is_one_sentence(method: str, keys: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence) as error:
        new_aggregator(method, tmp_path, **keys)
    assert "\n" not in str(error.value)


def test_the_public_samples_are_told(tmp_path: Path) -> None:
    aggregator = new_aggregator("feddf", tmp_path)
    assert f"the public data are {samples().description}" in [event["message"] for event in aggregator.events]
