"""The norms that generated tensors are scaled to."""

import pytest
import torch

from fedscale_ext.methods.hypemefed.rescaling import factor_to, trained_norms

A, B = "block2.conv1.weight", "block3.conv1.weight"


def test_norms_are_weighted_means_over_those_who_trained_a_layer() -> None:
    start = {A: torch.full((4,), 9.0), B: torch.full((4,), 5.0)}
    trained = [({A: torch.tensor([3.0, 4.0, 0.0, 0.0])}, 10.0), ({A: torch.tensor([0.0, 0.0, 0.0, -2.0])}, 30.0)]
    # norms 5 and 2; nobody trained the other layer, which keeps the norm of the round's start
    assert trained_norms(trained, [A, B], start) == {A: pytest.approx((50 + 60) / 40), B: pytest.approx(10.0)}
    assert trained_norms([], [A], start) == {A: pytest.approx(18.0)}


def test_a_tensor_of_zeros_stays() -> None:
    assert factor_to(3.0, torch.tensor([3.0, 4.0])) == pytest.approx(0.6)
    assert factor_to(3.0, torch.zeros(2)) == 1.0 and factor_to(0.0, torch.ones(2)) == 0.0
