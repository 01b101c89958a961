"""FedorAS's clients: a path for each batch, and nothing else moves."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from client_settings import NO_BENCH, bench_of, client_settings
from torch import nn
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.local_steps import drawn_rows
from fedscale_ext.core.streams import stream
from fedscale_ext.methods.fedoras.brackets import budget_tables
from fedscale_ext.methods.fedoras.client import EXAMPLES, FedorASClient, PathSgd
from fedscale_ext.methods.fedoras.operator_aggregation import operator_of
from fedscale_ext.methods.fedoras.path_sampling import drawn_paths, path_macs
from fedscale_ext.methods.fedoras.subspace_sampling import held_by
from fedscale_ext.models.supernet import family as supernet
from fedscale_ext.models.supernet.family import Searchable, restricted
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.training.optimizers.sgd import Sgd
from fedscale_ext.training.samples import ClientSamples
from methods.harness import samples

SHAPE, CLASSES = (1, 20, 20), 5
DATA = samples(20, shape=SHAPE)
SUPERNET = models.named_spec("cnn_tiny", SHAPE, CLASSES)
SPEC = restricted(SUPERNET, [(row[0], row[1 + layer % 3], "identity") for layer, row in enumerate(SUPERNET["ops"])])
BENCH = bench_of(SPEC, SUPERNET)
COSTS = budget_tables(SUPERNET, ())
BUDGET = 3e6


def conf(**changes: Any) -> ClientConfig:
    paths = {"budget": BUDGET, "unsupported": [], "load": 0.0, "idle_gradient": changes.pop("idle_gradient", "zero")}
    return client_settings(**{"batch_size": 8, "local_steps": 6, "paths": paths, "client_weight_decay": 0.0, **changes})


def network(spec: models.ModelSpec = SPEC) -> Any:
    module = models.build(spec)
    module.load_state_dict(models.initial_state(spec, 1))
    return module.double()


def paths_of(settings: ClientConfig) -> np.ndarray:
    key = settings.seed, settings.round, settings.client_id
    return drawn_paths(COSTS, held_by(COSTS, SPEC), BUDGET, 0.0, settings.local_steps, *key)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"client_momentum": 0.0},
        {"client_weight_decay": 0.01},
        {"clip_norm": 0.5},
        {"prox_mu": 0.3, "local_epochs": 2},
        {"client_momentum": 0.0, "prox_mu": 0.3, "clip_norm": 0.5, "client_weight_decay": 0.01},
    ],
)
@pytest.mark.parametrize("idle", ["zero", "none"])
def test_it_steps_as_torchs_sgd_on_gradients_that_are_zeroed_or_removed(changes: dict[str, Any], idle: str) -> None:
    settings, data = conf(**changes, idle_gradient=idle), DATA
    trained, twin = network(), network()
    result = FedorASClient(settings, BENCH).train(data, trained, settings)
    origin = [parameter.detach().clone() for parameter in twin.parameters()]
    sgd = torch.optim.SGD(
        twin.parameters(), settings.learning_rate, settings.client_momentum, weight_decay=settings.client_weight_decay
    )
    rows = drawn_rows(len(data), settings, stream(1, 1, 3, "batches"))
    losses = []
    for path, picked in zip(paths_of(settings), rows, strict=True):
        twin.choose(COSTS.path(path))
        sgd.zero_grad(set_to_none=idle == "none")
        loss = functional.cross_entropy(twin(data.x[picked]), data.y[picked])
        losses.append(loss.item())
        loss.backward()
        for parameter, before in zip(twin.parameters(), origin, strict=True):
            if parameter.grad is not None:
                parameter.grad += settings.prox_mu * (parameter.detach() - before)
        if settings.clip_norm:
            nn.utils.clip_grad_norm_(twin.parameters(), settings.clip_norm)
        sgd.step()
    assert result["trained_size"] == sum(map(len, rows)) and result["success"]
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(result["update_weight"][name], value, atol=1e-12, rtol=1e-12)
    assert len(set(losses)) == len(losses)


def test_what_no_path_has_is_bitwise_what_it_was() -> None:
    settings = conf(local_steps=3, client_weight_decay=0.1)
    module = network()
    start = {name: value.clone() for name, value in module.state_dict().items()}
    result = FedorASClient(settings, BENCH).train(DATA, module, settings)
    used = {operator for path in paths_of(settings) for operator in enumerate(COSTS.path(path))}
    for name, value in result["update_weight"].items():
        operator = operator_of(name)
        assert torch.equal(value, start[name]) == (operator is not None and operator not in used), name
    assert {operator_of(name) for name in start} - used - {None}, "some operator was never chosen"


@pytest.mark.parametrize(("idle", "course"), [("zero", [-0.1, -0.19, -0.271]), ("none", [-0.1, -0.1, -0.1])])
def test_momentum_keeps_moving_an_operator_that_paths_leave_out_unless_its_gradient_is_none(
    idle: Literal["zero", "none"], course: list[float]
) -> None:
    operator, shared, unused = (torch.zeros(1, dtype=torch.float64) for _ in range(3))
    sgd = PathSgd(Sgd.of(conf(learning_rate=0.1, client_momentum=0.9)), [shared, operator, unused], idle)
    values = []
    for used in ([0, 1], [0], [0]):
        sgd.step(used, [torch.ones(1, dtype=torch.float64) for _ in used])
        values.append(operator.item())
    assert values == pytest.approx(course) and unused.item() == 0
    assert shared.item() == pytest.approx(-0.1 - 0.19 - 0.271)


@pytest.mark.parametrize("idle", ["zero", "none"])
def test_momentum_moves_an_operator_between_two_paths_that_have_it_unless_its_gradient_is_none(
    monkeypatch: pytest.MonkeyPatch, idle: str
) -> None:
    settings, module, seen = conf(idle_gradient=idle), network(), []
    choose = Searchable.choose
    name = f"layers.0.{SPEC['ops'][0][0]}.conv.weight"

    def noted(self: Searchable, path: Any) -> None:
        seen.append((path[0] in name, module.state_dict()[name].clone()))
        choose(self, path)

    monkeypatch.setattr(Searchable, "choose", noted)
    FedorASClient(settings, BENCH).train(DATA, module, settings)
    moved = [not torch.equal(before, after) for (_, before), (_, after) in pairwise(seen)]
    chosen = [one for one, _ in seen[:-1]]
    assert True in chosen and False in chosen[chosen.index(True) :]
    first = chosen.index(True)
    assert moved == (chosen if idle == "none" else [step >= first for step in range(len(chosen))])


def test_examples_are_counted_by_operator_and_paths_are_within_the_budget() -> None:
    settings, module = conf(local_epochs=2, local_steps=6, batch_size=8), network()
    result = FedorASClient(settings, BENCH).train(DATA, module, settings)
    examples = result["returned"][EXAMPLES]
    assert examples.shape == COSTS.held.shape and (examples.sum(1) == 40).all()
    expected = np.zeros(COSTS.held.shape, dtype=np.int64)
    for path, size in zip(paths_of(settings), [8, 8, 4] * 2, strict=True):
        for layer, operator in enumerate(path):
            expected[layer, operator] += size
    assert (examples.numpy() == expected).all() and not expected[~held_by(COSTS, SPEC)].any()
    assert (path_macs(COSTS, paths_of(settings)) <= BUDGET).all()


def test_a_module_of_the_whole_supernet_holds_the_subspace_alone() -> None:
    settings, part, whole = conf(), network(), network(SUPERNET)
    whole.load_state_dict(part.state_dict(), strict=False)
    beside = {name: value.clone() for name, value in whole.state_dict().items() if name not in part.state_dict()}
    whole.hold(SPEC["ops"])
    client = FedorASClient(settings, BENCH)
    one, other = (client.train(DATA, module, settings)["update_weight"] for module in (part, whole))
    assert list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)
    whole.hold(SUPERNET["ops"])
    after = whole.state_dict()
    assert beside and all(torch.equal(after[name], value) for name, value in beside.items())


def test_a_path_is_trained_as_any_client_would() -> None:
    path = restricted(SUPERNET, [(row[2],) for row in SUPERNET["ops"]])
    settings = conf()
    settings = replace(settings, objective={})
    one = FedorASClient(settings, bench_of(path)).train(DATA, network(path), settings)
    other = MultiModelClient(settings, NO_BENCH).train(DATA, network(path), settings)
    assert all(torch.equal(one["update_weight"][name], value) for name, value in other["update_weight"].items())
    assert "returned" not in one


def test_texts_are_learned_at_every_position() -> None:
    ops = {"ops": [["linear"], ["qrnn", "zero"], ["linear", "identity"], ["zero", "causal_conv"]]}
    spec = supernet.make((1, 1, 6), 9, form="rnn", symbols=9, hidden=12, readout="all", **ops)
    costs, draw = budget_tables(spec, ()), torch.Generator().manual_seed(2)
    text = torch.randint(0, 9, (10, 7), generator=draw)
    data = ClientSamples(text[:, :6].double().view(10, 1, 1, 6), text[:, 6])
    settings = conf(
        local_steps=1, batch_size=10, paths={"budget": 1e12, "unsupported": [], "load": 0.0, "idle_gradient": "zero"}
    )
    module, twin = network(spec), network(spec)
    result = FedorASClient(settings, bench_of(spec)).train(data, module, settings)
    twin.choose(costs.path(drawn_paths(costs, costs.held, 1e12, 0.0, 1, 1, 1, 3)[0]))
    logits = twin(text[:, :6])
    assert result["moving_loss"] == pytest.approx(functional.cross_entropy(logits.mT, text[:, 1:]).item())


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    settings = conf(learning_rate=1e300)
    with pytest.raises(FloatingPointError):
        FedorASClient(settings, BENCH).train(DATA, network(), settings)
