"""What holds for jobs of mymethod, whose clients keep a part of the model, and what it is about."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedscale_ext.method import UserError


def test_without_layers_of_their_own_it_is_fedavg(job: Any, usual: Any) -> None:
    plain = job("plain", method="fedavg")["loss"]["test"]
    assert job("shared", **{"mymethod.layers": 0})["loss"]["test"] == pytest.approx(plain, rel=1e-4)
    assert usual["loss"]["test"] != pytest.approx(plain, rel=1e-4)


def test_what_clients_keep_does_not_reach_the_server(job: Any, usual: Any) -> None:
    one = load_file(job("one", rounds=1).path / "models/global.safetensors")
    three = load_file(usual.path / "models/global.safetensors")
    same = {name for name, tensor in one.items() if torch.equal(tensor, three[name])}
    assert same == {"linear2.weight", "linear2.bias"}  # the server's, as they were drawn


def test_what_clients_keep_does_not_travel(job: Any, usual: Any) -> None:
    whole = job("traffic", **{"mymethod.layers": 0})
    kept = load_file(usual.path / "models/global.safetensors")
    head = sum(kept[name].nbytes for name in ("linear2.weight", "linear2.bias"))
    less = whole["cost"]["network_total_mb"] - usual["cost"]["network_total_mb"]
    assert less * 1e6 == pytest.approx(2 * 3 * 12 * head)  # in both directions, three rounds, twelve clients


def test_clients_are_fine_tuned_from_what_they_keep(job: Any) -> None:
    tuned = job("tuned", personalise_epochs=1)["personalised"]
    assert tuned["tested"] == 12


@pytest.mark.parametrize("value", [-1, 4])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, value: int) -> None:
    with pytest.raises(UserError, match=f"mymethod.layers is {value}"):
        job("bad", **{"mymethod.layers": value})
