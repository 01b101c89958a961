"""FD: mean outputs of classes, the mean of the others' ones, and the loss towards it."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from client_settings import client_settings

from fedscale_ext import models
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.exchange.client import COUNTS, KNOWN_CLASSES
from fedscale_ext.methods.exchange.fd import OUTPUTS, FDClient
from fedscale_ext.methods.personal.personal_models import floating_tensors
from methods.exchange.exchange_harness import (
    aggregator_of_types,
    assert_cohorts_equal_one_by_one,
    bench,
    play,
    samples,
)
from methods.exchange.exchange_harness import new_aggregator as new_feature_aggregator
from methods.harness import CLASSES, SHAPE

SPECS = [models.named_spec(name, SHAPE, CLASSES) for name in ("cnn_small", "single_exit_mlp")]


new_aggregator = partial(aggregator_of_types, "fd")


def sent(seed: int, counts: list[int]) -> dict[str, torch.Tensor]:
    rows = np.random.default_rng(seed).dirichlet(np.ones(CLASSES), CLASSES).astype(np.float32)
    rows *= (np.array(counts) > 0)[:, None]
    return {OUTPUTS: torch.from_numpy(rows), COUNTS: torch.tensor(counts, dtype=torch.int32)}


def received(seed: int, classes: list[int]) -> dict[str, torch.Tensor]:
    rows = np.random.default_rng(seed).dirichlet(np.ones(CLASSES), len(classes)).astype(np.float32)
    return {OUTPUTS: torch.from_numpy(rows), KNOWN_CLASSES: torch.tensor(classes, dtype=torch.int32)}


def test_a_client_receives_the_mean_of_the_others_by_class(tmp_path: Path) -> None:
    aggregator = new_aggregator(tmp_path)
    answers = {1: sent(1, [4, 6, 0, 0, 0]), 2: sent(2, [15, 5, 0, 0, 0]), 3: sent(3, [10, 0, 20, 0, 0])}
    play(aggregator, 1, [1, 2, 3], answers)
    one, two, three = (each[OUTPUTS].numpy() for each in answers.values())
    expected = {
        1: {0: (two[0] + three[0]) / 2, 1: two[1], 2: three[2]},
        2: {0: (one[0] + three[0]) / 2, 1: one[1], 2: three[2]},
        3: {0: (one[0] + two[0]) / 2, 1: (one[1] + two[1]) / 2},  # nobody else has class 2
        4: {0: (one[0] + two[0] + three[0]) / 3, 1: (one[1] + two[1]) / 2, 2: three[2]},  # took no part
    }
    for client, rows in expected.items():
        message = aggregator.message_for(client)
        assert message[KNOWN_CLASSES].tolist() == list(rows)
        np.testing.assert_allclose(message[OUTPUTS].numpy(), np.stack(list(rows.values())), rtol=1e-5)
        (item,) = aggregator.assign(2, np.array([client]))
        assert aggregator.download_bytes(item) == len(rows) * (4 * CLASSES + 4)


def test_a_checkpoint_holds_what_the_others_sent(tmp_path: Path) -> None:
    aggregator, resumed = new_aggregator(tmp_path / "a"), new_aggregator(tmp_path / "b")
    play(aggregator, 1, [1, 4, 5])
    resumed.load_state(*aggregator.state())
    for client in range(1, 7):
        one, other = aggregator.message_for(client), resumed.message_for(client)
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("spec", SPECS, ids=["one output", "an exit"])
def test_the_loss_adds_cross_entropy_with_the_others_outputs(spec: models.ModelSpec) -> None:
    """One step of SGD by the client, beside one that autograd takes on the loss written out."""
    at, data, known = bench(spec), samples(9), received(5, [0, 3])
    conf = client_settings(model_key="a", shared_tensors={}, received_tensors=known, client_state={}, weight=0.6,
                           local_steps=1, batch_size=9, client_momentum=0.0, client_weight_decay=0.0)  # fmt: skip
    result = FDClient(conf, at).train(data, at.module(), conf)
    expected = at.module()
    log_p = expected(data.x).reshape(9, CLASSES).log_softmax(1)
    total = torch.zeros((), dtype=torch.float64)
    for row, label in zip(log_p, data.y.tolist(), strict=True):
        teacher = known[OUTPUTS][[0, 3].index(label)].double() if label in (0, 3) else torch.zeros(CLASSES).double()
        total = total - row[label] - 0.6 * (teacher * row).sum()
    (total / 9).backward()
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(
            result["client_state"][name], parameter.detach() - 0.05 * parameter.grad, atol=1e-7, rtol=1e-7
        )
    assert result["moving_loss"] == pytest.approx(total.item() / 9, rel=1e-6)


def test_it_sends_mean_probabilities_of_its_trained_model() -> None:
    at, data = bench(SPECS[0]), samples(11, classes=3)
    conf = client_settings(model_key="a", client_state={}, received_tensors=received(1, []), returns_tensors=True)
    model = at.module()
    result = FDClient(conf, at).train(data, model, conf)["returned"]
    with torch.no_grad():
        logits = model.eval()(data.x).numpy()
    outputs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    for label in range(3):
        expected = outputs[data.y.numpy() == label].mean(0)
        np.testing.assert_allclose(result[OUTPUTS][label].numpy(), expected, rtol=1e-5)
    assert result[COUNTS].tolist() == np.bincount(data.y.numpy(), minlength=CLASSES).tolist()


@pytest.mark.parametrize("spec", SPECS, ids=["one output", "an exit"])
def test_clients_side_by_side_learn_from_what_each_received(spec: models.ModelSpec) -> None:
    states = [{}, floating_tensors(bench(spec, 9).module().state_dict())]
    each = [{"received_tensors": received(1, [0, 2])}, {"received_tensors": received(2, [1, 2, 4])}]
    assert_cohorts_equal_one_by_one(FDClient, spec, states, {}, each, weight=2.0)


def test_it_needs_no_features_of_one_width(tmp_path: Path) -> None:
    assert not hasattr(new_aggregator(tmp_path).params, "representation")
    assert new_feature_aggregator("fedproto", tmp_path).params.representation


def test_a_type_that_does_not_end_in_a_linear_layer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not end in a linear layer from features to the classes"):
        new_aggregator(tmp_path, types=["methods.exchange.exchange_harness:EndsInMaps"], ranges=["1-6"])
