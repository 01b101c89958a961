"""FedProto: prototypes and their mean, the loss towards them, the nearest one as prediction."""

from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.methods.exchange.class_vectors import VECTORS
from fedscale_ext.methods.exchange.client import COUNTS, KNOWN_CLASSES, NearestPrototype
from fedscale_ext.methods.exchange.prototypes import PROTOTYPES, PrototypeClient
from fedscale_ext.methods.personal.personal_models import floating_tensors
from fedscale_ext.models.families.headed import headed
from fedscale_ext.models.layers.final_layer import final_layer
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
EXITS = headed(models.named_spec("single_exit_mlp", SHAPE, CLASSES), WIDTH)
MESSAGE = {
    VECTORS: torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(2)),
    KNOWN_CLASSES: torch.tensor([0, 2, 4], dtype=torch.int32),
}


def test_global_prototypes_are_means_by_samples_and_stay_where_nobody_has_a_class(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedproto", tmp_path)
    rng = np.random.default_rng(1)

    def sent(counts: list[int]) -> dict[str, torch.Tensor]:
        rows = rng.normal(size=(CLASSES, WIDTH)).astype(np.float32) * (np.array(counts) > 0)[:, None]
        return {PROTOTYPES: torch.from_numpy(rows), COUNTS: torch.tensor(counts, dtype=torch.int32)}

    one, two, three = sent([4, 6, 0, 0, 0]), sent([15, 0, 5, 0, 0]), sent([10, 0, 0, 20, 0])
    play(aggregator, 1, [1, 2], {1: one, 2: two})
    (a, b, c) = (each[PROTOTYPES].numpy() for each in (one, two, three))
    expected = np.stack([(4 * a[0] + 15 * b[0]) / 19, a[1], b[2]])
    np.testing.assert_allclose(aggregator.message()[VECTORS].numpy(), expected, rtol=1e-5)
    play(aggregator, 2, [3], {3: three})
    np.testing.assert_allclose(aggregator.message()[VECTORS].numpy(), np.stack([c[0], a[1], b[2], c[3]]), rtol=1e-5)
    assert aggregator.message()[KNOWN_CLASSES].tolist() == [0, 1, 2, 3]


def test_a_checkpoint_holds_the_prototypes_and_who_sent_how_much(tmp_path: Path) -> None:
    aggregator, resumed = new_aggregator("fedproto", tmp_path / "a"), new_aggregator("fedproto", tmp_path / "b")
    play(aggregator, 1, [1, 4])
    resumed.load_state(*aggregator.state())
    resumed.sent_tensors.load_state(*aggregator.sent_tensors.state())
    items = [each.assign(2, np.arange(1, 7)) for each in (aggregator, resumed)]
    assert items[0] == items[1]
    assert [aggregator.upload_bytes(item) for item in items[0]] == [resumed.upload_bytes(item) for item in items[1]]
    assert aggregator.shared.sections([]) == resumed.shared.sections([])


@pytest.mark.parametrize("spec", [SPEC, EXITS], ids=["one output", "an exit"])
def test_the_loss_is_cross_entropy_and_the_weighted_distance(spec: models.ModelSpec) -> None:
    at, conf = bench(spec), client_settings(model_key="a", shared_tensors=MESSAGE, weight=0.7)
    client, data = PrototypeClient(conf, at), samples(7)
    module = at.module()
    with torch.no_grad():
        features = torch.relu(module.body(data.x))
        output = module(data.x)
    flat, logits = features.reshape(7, WIDTH).numpy(), output.reshape(7, CLASSES).numpy()
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    entropy = -np.log(shifted / shifted.sum(1, keepdims=True))[np.arange(7), data.y.numpy()]
    known = dict(zip([0, 2, 4], MESSAGE[VECTORS].numpy(), strict=True))
    distance = [((row - known[label]) ** 2).mean() if label in known else 0.0
                for row, label in zip(flat, data.y.tolist(), strict=True)]  # fmt: skip
    losses = client.feature_losses(output, features.reshape(7, WIDTH), data.y)
    np.testing.assert_allclose(losses.numpy(), entropy + 0.7 * np.array(distance), rtol=1e-6)
    assert any(distance) and not all(distance)


@pytest.mark.parametrize("spec", [SPEC, EXITS], ids=["one output", "an exit"])
def test_a_step_follows_the_gradient_of_that_loss(spec: models.ModelSpec) -> None:
    """One step of SGD by the client, beside one that autograd takes on the loss written out."""
    at = bench(spec)
    conf = client_settings(model_key="a", shared_tensors=MESSAGE, client_state={}, weight=2.0, local_steps=1,
                           batch_size=9, client_momentum=0.0, client_weight_decay=0.0)  # fmt: skip
    data, expected = samples(9), at.module()
    client = PrototypeClient(conf, at)
    trained = client.train(data, at.module(), conf)["client_state"]
    features = torch.relu(expected.body(data.x)).reshape(9, WIDTH)
    loss = torch.nn.functional.cross_entropy(expected.head(features), data.y, reduction="none")
    table = torch.zeros(CLASSES, WIDTH, dtype=torch.float64)
    table[MESSAGE[KNOWN_CLASSES].long()] = MESSAGE[VECTORS].double()
    known = torch.isin(data.y, MESSAGE[KNOWN_CLASSES])
    (loss + 2.0 * known * ((features - table[data.y]) ** 2).mean(1)).mean().backward()
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(trained[name], parameter.detach() - 0.05 * parameter.grad, atol=1e-9, rtol=1e-9)


def test_a_client_sends_the_mean_features_of_its_trained_model() -> None:
    at = bench(SPEC)
    conf = client_settings(model_key="a", client_state={}, returns_tensors=True, test_bsz=4)
    data = samples(11, classes=3)
    model = at.module()
    result = PrototypeClient(conf, at).train(data, model, conf)
    with torch.no_grad():
        features = torch.relu(model.eval().body(data.x)).numpy()
    for label in range(CLASSES):
        mine = features[data.y.numpy() == label]
        assert int(result["returned"][COUNTS][label]) == len(mine)
        expected = mine.mean(0) if len(mine) else np.zeros(WIDTH)
        np.testing.assert_allclose(result["returned"][PROTOTYPES][label].numpy(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("spec", [SPEC, EXITS], ids=["one output", "an exit"])
def test_clients_side_by_side_learn_what_they_learn_one_by_one(spec: models.ModelSpec) -> None:
    states = [{}, floating_tensors(bench(spec, 9).module().state_dict())]
    assert_cohorts_equal_one_by_one(PrototypeClient, spec, states, MESSAGE, weight=3.0)


def test_the_nearest_prototype_is_predicted_and_unknown_classes_never_are() -> None:
    at = bench(SPEC)
    conf = client_settings(model_key="a", shared_tensors=MESSAGE, predict="prototype")
    model, data = at.module().eval(), samples(8)
    network = PrototypeClient(conf, at).predictor(model, conf)
    with torch.no_grad():
        logits, features = network(data.x).numpy(), torch.relu(model.body(data.x)).numpy()
    distances = np.linalg.norm(features[:, None] - MESSAGE[VECTORS].numpy(), axis=2)
    assert logits.argmax(1).tolist() == [[0, 2, 4][each] for each in distances.argmin(1)]
    np.testing.assert_allclose(logits[:, [0, 2, 4]], 1 + distances.max(1, keepdims=True) - distances, rtol=1e-6)
    assert not logits[:, [1, 3]].any()


@pytest.mark.parametrize(("predict", "message"), [("head", MESSAGE), ("prototype", {})])
def test_the_head_is_tested_where_it_is_asked_for_and_before_there_are_prototypes(predict: str, message: dict) -> None:
    at = bench(SPEC)
    conf = client_settings(model_key="a", shared_tensors=message, predict=predict)
    model = at.module()
    assert PrototypeClient(conf, at).predictor(model, conf) is model


def test_one_known_class_is_predicted_always() -> None:
    model = bench(SPEC).module().eval()
    known = torch.tensor([False, False, True, False, False])
    network = NearestPrototype(model, final_layer(SPEC).name, torch.zeros(CLASSES, WIDTH), known)
    assert network(samples(5).x).argmax(1).tolist() == [2] * 5
