"""What holds for jobs of mymethod, whose clients keep models, and what it is about."""

from typing import Any

import numpy as np
import pytest
import torch
from mymethod.aggregator import consensus

from fedscale_ext.method import UserError


def test_without_distillation_it_is_local_training(job: Any, usual: Any) -> None:
    one = {"mymethod.types": ["cnn_small"], "mymethod.groups": [12]}
    local = job("local", method="local")["loss"]["test"]
    assert job("alone", **one, **{"mymethod.epochs": 0})["loss"]["test"] == pytest.approx(local, rel=1e-4)
    assert job("together", **one)["loss"]["test"] != pytest.approx(local, rel=1e-4)


def test_both_types_of_models_are_tested(usual: Any) -> None:
    assert [each["type"] for each in usual["results"]["types"]] == ["single_exit_mlp", "cnn_small", "all"]


def test_models_do_not_travel(job: Any, usual: Any) -> None:
    alone = job("silent", **{"mymethod.epochs": 0})
    assert alone["cost"]["network_total_mb"] == usual["cost"]["network_total_mb"]
    types = ["single_exit_mlp", "cnn_leaf"]
    large = job("large", **{"mymethod.types": types, "mymethod.groups": [6, 6]})
    assert large["cost"]["network_total_mb"] == usual["cost"]["network_total_mb"]


def test_the_consensus_is_the_sharpened_mean() -> None:
    logits = np.random.default_rng(3).normal(size=(3, 5, 4))
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    squares = probabilities.mean(0) ** 2
    expected = squares / squares.sum(-1, keepdims=True)
    np.testing.assert_allclose(consensus(torch.from_numpy(logits), 0.5), expected)


@pytest.mark.parametrize(("key", "value"), [("temperature", 0), ("epochs", -1), ("batch_size", 0)])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, key: str, value: int) -> None:
    with pytest.raises(UserError, match=f"mymethod.{key} is {value}"):
        job("bad", **{f"mymethod.{key}": value})
