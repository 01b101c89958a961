"""FedScale's result of a client's training."""

import math

import pytest
import torch
from client_settings import client_settings

from fedscale_ext.training.outcome import result


def test_the_utility_is_of_the_losses_of_all_steps() -> None:
    """Oort, section 4.2: the number of samples times the root of their mean squared loss."""
    losses = [torch.tensor([3.0, 1.0]), torch.tensor([2.0, 2.0]), torch.tensor([0.5])]
    conf = client_settings(local_steps=3, local_epochs=1, batch_size=2)
    assert result(conf, 5, losses)["utility"] == pytest.approx(5 * math.sqrt((9 + 1 + 4 + 4 + 0.25) / 5))
    few = client_settings(local_steps=2, batch_size=2)  # which see four of a hundred samples
    assert result(few, 100, losses[:2])["utility"] == pytest.approx(4 * math.sqrt(18 / 4))


def test_samples_that_a_client_holds_out_are_not_seen() -> None:
    losses = [torch.full((10,), float(step)) for step in range(1, 21)]
    half = client_settings(local_steps=20, batch_size=10, held_out=0.5)
    full = client_settings(local_steps=20, batch_size=10)
    assert result(half, 100, losses) == result(full, 50, losses)


def test_the_loss_is_of_the_first_epoch() -> None:
    losses = [torch.tensor([value]) for value in (2.0, 1.0, 100.0, 100.0)]
    steps = client_settings(local_steps=4, batch_size=1)
    epochs = client_settings(local_steps=4, local_epochs=2, batch_size=1)
    for conf in (steps, epochs):
        assert result(conf, 2, losses)["moving_loss"] == pytest.approx(0.8 * 2.0 + 0.2 * 1.0)
