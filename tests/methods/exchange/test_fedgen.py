"""FedGen: the generator and its training, clients' losses, cohorts, what counts as traffic and work."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from client_settings import client_settings
from torch.nn import functional

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.streams import torch_stream
from fedscale_ext.methods.exchange.client import COUNTS
from fedscale_ext.methods.exchange.fedgen import GENERATOR, LABELS, FedGenClient
from fedscale_ext.methods.exchange.generator import (
    diversity_loss,
    drawn_generator,
    drawn_labels,
    loaded_generator,
    trained_generator,
)
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.models.families.headed import headed
from methods.exchange.exchange_harness import (
    WIDTH,
    assert_cohorts_equal_one_by_one,
    bench,
    new_aggregator,
    play,
    samples,
)
from methods.harness import CLASSES, SHAPE

SPEC = headed(models.named_spec("cnn_small", SHAPE, CLASSES), WIDTH)
EXIT = headed(models.named_spec("single_exit_mlp", SHAPE, CLASSES), WIDTH)
NOISE, HIDDEN = 3, 7
STATE = drawn_generator(NOISE, CLASSES, HIDDEN, WIDTH, torch.Generator().manual_seed(3))
STATE["norm.running_mean"], STATE["norm.running_var"] = torch.linspace(-1, 1, HIDDEN), torch.linspace(1, 2, HIDDEN)
HEAD = {
    "weight": torch.randn(CLASSES, WIDTH, generator=torch.Generator().manual_seed(4)),
    "bias": torch.randn(CLASSES, generator=torch.Generator().manual_seed(5)),
}
COUNTED = torch.tensor([5, 0, 3, 2, 0])
MESSAGE = {**HEAD, LABELS: COUNTED.int(), **{GENERATOR + name: tensor for name, tensor in STATE.items()}}
HOW: dict[str, Any] = {"noise": NOISE, "hidden": HIDDEN, "steps": 4, "batch_size": 6}


def generated(noise: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Features of a generator in evaluation, by NumPy."""
    held = {name: tensor.numpy().astype(np.float64) for name, tensor in STATE.items()}
    hidden = np.concatenate([noise, np.eye(CLASSES)[labels]], 1) @ held["hidden.weight"].T + held["hidden.bias"]
    hidden = (hidden - held["norm.running_mean"]) / np.sqrt(held["norm.running_var"] + 1e-5)
    hidden = np.maximum(hidden * held["norm.weight"] + held["norm.bias"], 0)
    return hidden @ held["output.weight"].T + held["output.bias"]


def test_features_are_those_of_the_generators_layers() -> None:
    rng = np.random.default_rng(1)
    noise, labels = rng.normal(size=(4, NOISE)).astype(np.float32), np.array([0, 4, 2, 2])
    with torch.no_grad():
        features = loaded_generator(STATE, CLASSES)(torch.from_numpy(noise), torch.from_numpy(labels))
    np.testing.assert_allclose(features.numpy(), generated(noise, labels), rtol=1e-4, atol=1e-5)


def test_features_that_differ_with_the_noise_have_a_lower_diversity_loss() -> None:
    rng = np.random.default_rng(2)
    noise, features = rng.normal(size=(5, NOISE)), rng.normal(size=(5, WIDTH))
    products = [
        np.square(noise[i] - noise[j]).mean() * np.abs(features[i] - features[j]).mean()
        for i in range(5) for j in range(5)
    ]  # fmt: skip
    loss = diversity_loss(torch.from_numpy(noise), torch.from_numpy(features))
    assert float(loss) == pytest.approx(np.exp(-np.mean(products)))
    assert float(diversity_loss(torch.from_numpy(noise), torch.zeros(5, WIDTH).double())) == 1.0 > float(loss)


def test_a_step_of_the_server_follows_the_heads_cross_entropy() -> None:
    how: dict[str, Any] = {"batch_size": 8, "lr": 0.01, "diversity": 0.5}
    trained = trained_generator(STATE, HEAD, COUNTED, steps=1, generator=torch_stream(1, "here"), **how)
    # the same draws, and the loss by torch's functions
    stream = torch_stream(1, "here")
    labels = drawn_labels(COUNTED, 8, stream)
    noise = torch.randn(8, NOISE, generator=stream)
    held = {name: tensor.clone().requires_grad_() for name, tensor in STATE.items() if "running" not in name}
    hidden = torch.cat([noise, functional.one_hot(labels, CLASSES)], 1) @ held["hidden.weight"].T + held["hidden.bias"]
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + 1e-5).sqrt()
    features = (hidden * held["norm.weight"] + held["norm.bias"]).relu() @ held["output.weight"].T + held["output.bias"]
    logits = features @ HEAD["weight"].T + HEAD["bias"]
    loss = (logits.logsumexp(1) - logits[torch.arange(8), labels]).mean() + 0.5 * diversity_loss(noise, features)
    gradients = dict(zip(held, torch.autograd.grad(loss, list(held.values())), strict=True))
    for name in ("output.weight", "output.bias", "norm.weight"):  # Adam's first step is lr times the sign
        clear = gradients[name].abs() > 1e-5
        assert clear.any()
        change = trained[name] - STATE[name]
        torch.testing.assert_close(change[clear], -0.01 * gradients[name].sign()[clear], rtol=2e-2, atol=1e-5)


def test_classes_that_no_client_has_are_never_drawn() -> None:
    drawn = drawn_labels(COUNTED, 400, torch_stream(1, "labels"))
    shares = torch.bincount(drawn, minlength=CLASSES) / 400
    assert not shares[[1, 4]].any() and shares[0] == pytest.approx(0.5, abs=0.1)


def test_a_generator_learns_what_the_head_tells_apart() -> None:
    def right(state: dict[str, torch.Tensor]) -> float:
        stream = torch_stream(2, "test")
        labels = drawn_labels(COUNTED, 200, stream)
        with torch.no_grad():
            features = loaded_generator(state, CLASSES)(torch.randn(200, NOISE, generator=stream), labels)
        return float(((features @ HEAD["weight"].T + HEAD["bias"]).argmax(1) == labels).float().mean())

    how: dict[str, Any] = {"batch_size": 32, "lr": 0.02, "diversity": 0.0}
    trained = trained_generator(STATE, HEAD, COUNTED, steps=150, generator=torch_stream(1, "here"), **how)
    assert right(trained) > 0.9 > right(STATE)


def test_a_clients_loss_has_that_of_generated_features() -> None:
    conf = client_settings(model_key="a", client_state={}, shared_tensors=MESSAGE, weight=0.4)
    client = FedGenClient(conf, bench(SPEC))
    client._streams = [torch_stream(9, "client")]
    client.tapped = lambda features: functional.linear(features, HEAD["weight"].double(), HEAD["bias"].double())
    rng = np.random.default_rng(4)
    output, labels = rng.normal(size=(6, CLASSES)), np.array([0, 1, 2, 3, 4, 0])
    losses = client.feature_losses(torch.from_numpy(output), torch.zeros(6, WIDTH).double(), torch.from_numpy(labels))
    stream = torch_stream(9, "client")
    drawn = drawn_labels(COUNTED, 6, stream).numpy()
    features = generated(torch.randn(6, NOISE, generator=stream).numpy(), drawn)
    logits = features @ HEAD["weight"].numpy().T + HEAD["bias"].numpy()
    rows = np.arange(6)
    real, extra = (np.log(np.exp(z).sum(1)) - z[rows, y] for z, y in ((output, labels), (logits, drawn)))
    np.testing.assert_allclose(losses.numpy(), real + 0.4 * extra, rtol=1e-4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [(SPEC, MESSAGE), (SPEC, HEAD), (EXIT, MESSAGE)],
    ids=["generated features", "at first none", "an exit"],
)
def test_clients_side_by_side_learn_what_they_learn_one_by_one(
    spec: models.ModelSpec, message: dict[str, torch.Tensor]
) -> None:
    states = [{}, floating_tensors(bench(spec, 9).module().state_dict())]
    assert_cohorts_equal_one_by_one(FedGenClient, spec, states, message, weight=0.7)


def test_generated_features_change_what_a_client_learns() -> None:
    sent = {}
    for weight in (0.0, 0.7):
        at = bench(SPEC)
        conf = client_settings(
            model_key="a", client_state={}, shared_tensors=MESSAGE, returns_tensors=True, weight=weight
        )
        sent[weight] = FedGenClient(conf, at).train(samples(9), at.module(), conf)["returned"]
    assert not torch.allclose(sent[0.0]["weight"], sent[0.7]["weight"])
    assert sent[0.7][COUNTS].tolist() == torch.bincount(samples(9).y, minlength=CLASSES).tolist()


def test_the_server_averages_heads_and_trains_the_generator_on_the_mean(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgen", tmp_path, **HOW)
    before = {name: tensor.clone() for name, tensor in aggregator.generator.items()}
    items = play(aggregator, 1, [2, 5])
    sent = [aggregator.sent_tensors.of[item.client] for item in items]
    mean = (20 * sent[0]["weight"] + 50 * sent[1]["weight"]) / 70
    torch.testing.assert_close(aggregator.head["weight"], mean)
    assert aggregator.counts.tolist() == (sent[0][COUNTS] + sent[1][COUNTS]).tolist()
    expected = trained_generator(before, aggregator.head, aggregator.counts, steps=4, batch_size=6, lr=0.0003,
                                 diversity=1.0,
                                 generator=torch_stream(aggregator.seed, 1, "generator"))  # fmt: skip
    assert all(torch.equal(aggregator.generator[name], tensor) for name, tensor in expected.items())


def test_heads_and_the_generator_count_as_traffic_and_generated_features_as_work(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgen", tmp_path, **HOW)
    head = 4 * CLASSES * (WIDTH + 1)
    (item,) = aggregator.assign(1, np.array([2]))
    assert aggregator.download_bytes(item) == head and item.compute_fraction == 1.0
    assert item.forward_fraction == 0.0  # nothing is generated in the first round
    assert aggregator.upload_bytes(item) == head + 4 * CLASSES
    play(aggregator, 1, [2])
    assert aggregator.upload_bytes(item) == head + 4 * CLASSES  # whole, whichever classes the client lacks
    (item,) = aggregator.assign(2, np.array([2]))
    generator = 4 * ((NOISE + CLASSES + 1) * HIDDEN + 4 * HIDDEN + (HIDDEN + 1) * WIDTH)
    assert aggregator.download_bytes(item) == head + generator + 4 * CLASSES
    whole = aggregator.pool[item.model].cost.forward_macs
    assert item.compute_fraction == pytest.approx(1 + CLASSES * WIDTH / whole)
    assert item.forward_fraction == pytest.approx(((NOISE + CLASSES) * HIDDEN + HIDDEN * WIDTH) / whole)
    assert aggregator.server_bytes() == generator


def test_a_generator_that_diverges_stays_as_it_was(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedgen", tmp_path, **HOW, lr=1e30)
    before = {name: tensor.clone() for name, tensor in aggregator.generator.items()}
    play(aggregator, 1)
    assert all(torch.equal(aggregator.generator[name], tensor) for name, tensor in before.items())
    assert any("as before; lower fedgen.lr" in event["message"] for event in aggregator.events)


def test_a_checkpoint_holds_head_generator_and_counts(tmp_path: Path) -> None:
    aggregator, resumed = (
        new_aggregator("fedgen", tmp_path / "a", **HOW),
        new_aggregator("fedgen", tmp_path / "b", **HOW),
    )
    play(aggregator, 1)
    resumed.load_state(*aggregator.state())
    assert aggregator.shared.sections([]) == resumed.shared.sections([])
    play(aggregator, 2), play(resumed, 2)
    assert aggregator.shared.sections([]) == resumed.shared.sections([])


def test_a_batch_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"fedgen.batch_size is 1; the generator's BatchNorm needs at least 2"):
        new_aggregator("fedgen", tmp_path, batch_size=1)
