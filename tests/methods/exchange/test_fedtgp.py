"""FedTGP: generated prototypes, the adaptive margin, the contrastive loss, and a step of the server."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedscale_ext.methods.exchange.class_vectors import VECTORS
from fedscale_ext.methods.exchange.client import COUNTS, KNOWN_CLASSES
from fedscale_ext.methods.exchange.fedtgp import adaptive_margin, contrastive, generated
from fedscale_ext.methods.exchange.prototypes import PROTOTYPES
from methods.exchange.exchange_harness import WIDTH, answer, new_aggregator, play
from methods.harness import CLASSES


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_prototypes_are_outputs_of_two_layers_of_the_classes_vectors() -> None:
    vectors, one, two, a, b = (numbers(*shape) for shape in ((5, 6), (6, 6), (6, 6), (6,), (6,)))
    state = {"vectors": vectors, "weight1": one, "bias1": a, "weight2": two, "bias2": b}
    prototypes = generated({name: torch.from_numpy(each) for name, each in state.items()})
    np.testing.assert_allclose(prototypes.numpy(), np.maximum(vectors @ one.T + a, 0) @ two.T + b, rtol=1e-9)


def test_the_loss_asks_for_a_margin() -> None:
    rows, centres, classes, margin = numbers(4, 6), numbers(5, 6, seed=2), np.array([0, 3, 3, 4]), 1.7
    losses = []
    for row, label in zip(rows, classes, strict=True):
        distance = np.sqrt(((row - centres) ** 2).sum(1))
        mine = np.exp(-(distance[label] + margin))
        others = sum(np.exp(-distance[other]) for other in range(5) if other != label)
        losses.append(-np.log(mine / (mine + others)))
    loss = contrastive(torch.from_numpy(rows), torch.from_numpy(classes), torch.from_numpy(centres), margin)
    assert float(loss) == pytest.approx(np.mean(losses), rel=1e-9)


def test_the_margin_is_the_largest_distance_to_the_nearest_centre_at_most_the_threshold() -> None:
    rows, classes = numbers(7, 6), np.array([0, 0, 2, 2, 4, 4, 4])
    centres = [rows[classes == label].mean(0) for label in (0, 2, 4)]
    largest = max(
        min(np.linalg.norm(one - other) for b, other in enumerate(centres) if b != a) for a, one in enumerate(centres)
    )
    inputs = torch.from_numpy(rows), torch.from_numpy(classes), 5
    assert adaptive_margin(*inputs, 100.0) == pytest.approx(largest, rel=1e-9)
    assert adaptive_margin(*inputs, 0.3) == 0.3
    assert adaptive_margin(inputs[0], torch.zeros(7, dtype=torch.int64), 5, 7.5) == 7.5


def test_the_server_takes_steps_of_sgd_on_that_loss(tmp_path: Path) -> None:
    """One full batch: the step is along the gradient by finite differences."""
    aggregator = new_aggregator("fedtgp", tmp_path, epochs=1, batch_size=100, lr=0.2)
    before = {name: tensor.double() for name, tensor in aggregator.network.items()}
    items = play(aggregator, 1, [1, 2])
    sent = [answer(aggregator, item, 1) for item in items]
    rows = torch.cat([each[PROTOTYPES][each[COUNTS] > 0] for each in sent]).double()
    classes = torch.cat([(each[COUNTS] > 0).nonzero().flatten() for each in sent])
    margin = adaptive_margin(rows, classes, CLASSES, 100.0)

    def loss(name: str, index: int, change: float) -> float:
        moved = {key: tensor.clone() for key, tensor in before.items()}
        moved[name].view(-1)[index] += change
        return float(contrastive(rows, classes, generated(moved), margin))

    for name in before:
        for index in (0, before[name].numel() - 1):
            gradient = (loss(name, index, 1e-5) - loss(name, index, -1e-5)) / 2e-5
            expected = float(before[name].view(-1)[index]) - 0.2 * gradient
            assert float(aggregator.network[name].view(-1)[index]) == pytest.approx(expected, abs=1e-5), name
    torch.testing.assert_close(aggregator.message()[VECTORS], generated(aggregator.network))
    assert aggregator.message()[KNOWN_CLASSES].tolist() == list(range(CLASSES))


def test_training_brings_the_clients_prototypes_to_their_classes(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedtgp", tmp_path, epochs=300, lr=0.05)
    items = play(aggregator, 1, [1, 2])
    right = total = 0
    for item in items:
        sent = answer(aggregator, item, 1)
        for label in sent[COUNTS].nonzero().flatten().tolist():
            distances = (aggregator.prototypes - sent[PROTOTYPES][label]).norm(dim=1)
            right, total = right + int(distances.argmin() == label), total + 1
    assert right == total == 4


def test_a_checkpoint_holds_the_servers_network(tmp_path: Path) -> None:
    aggregator, resumed = (
        new_aggregator("fedtgp", tmp_path / "a", epochs=3),
        new_aggregator("fedtgp", tmp_path / "b", epochs=3),
    )
    play(aggregator, 1, [1, 4])
    resumed.load_state(*aggregator.state())
    assert aggregator.shared.sections([]) == resumed.shared.sections([])
    for each in (aggregator, resumed):
        play(each, 2, [2, 4])
    assert torch.equal(aggregator.prototypes, resumed.prototypes) and aggregator.prototypes.shape == (CLASSES, WIDTH)


def test_prototypes_that_diverge_stay_as_they_were(tmp_path: Path) -> None:
    aggregator = new_aggregator("fedtgp", tmp_path, lr=1e38)
    play(aggregator, 1)
    assert not aggregator.message() and any("lower fedtgp.lr" in event["message"] for event in aggregator.events)
