import pytest
import torch

from fedscale_ext.methods.hypemefed.measures import RoundMeasures, movement, weight_error


def one(*values):
    return {"w": torch.tensor(values)}


def test_weight_error_absolute_and_in_parts_of_the_weights():
    assert weight_error(one(1.0, 2.0), one(2.0, -2.0)) == (2.5, 1.25)
    assert weight_error(one(1.0), one(0.0)) == (1.0, 0.0)


def test_the_error_is_over_all_entries_of_all_tensors():
    true = {"a": torch.tensor([3.0, -1.0]), "b": torch.tensor([4.0])}
    guess = {"a": torch.tensor([2.0, 0.0]), "b": torch.tensor([3.0]), "c": torch.tensor([9.0])}
    assert weight_error(guess, true) == (1.0, 3 / 8)


def test_movement_towards_what_was_trained():
    figures = movement(one(0.0, 0.0), one(1.0, 0.0), one(3.0, 4.0), one(0.0, 2.5))
    assert figures == pytest.approx({"step": 0.2, "cosine": 0.6, "norm": 0.5})
    assert movement(one(1.0), one(1.0), one(1.0)) == {"step": 0.0, "cosine": 0.0}


def test_a_rounds_figures_weigh_clients_as_its_mean_does():
    # T = (3 + 3 * 7) / 4 = 6 and G = (1 * 3 + 3 * 1) / 4 = 1.5; the mean over all four is (3 + 21 + 3 + 3) / 8
    measures = RoundMeasures([(one(3.0), 1.0), (one(7.0), 3.0), ({}, 9.0)])
    measures.add(one(3.0), 1.0)
    measures.add(one(1.0), 3.0)
    figures = measures.result(one(2.0), one(3.75))["w"]
    assert figures == pytest.approx({
        "mae": (3 + 5) / 2, "normalised": 4 / 6, "mae_old": 4.0, "mae_random": 0.0,
        "step": 1.75 / 4, "cosine": 1.0, "norm": 1.5 / 6,
    })  # fmt: skip
