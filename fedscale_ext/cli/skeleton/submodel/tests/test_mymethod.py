"""What holds for jobs of mymethod, whose clients train parts of one model, and what it is about."""

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from fedscale_ext.method import UserError


def rows(table: Any) -> list[dict[str, Any]]:
    """Rows of a result's table, which is pandas' where that is installed."""
    return table.to_dict("records") if hasattr(table, "to_dict") else table


def test_with_the_whole_model_for_all_it_is_fedavg(job: Any, usual: Any) -> None:
    plain = job("plain", method="fedavg")["loss"]["test"]
    assert job("whole", **{"mymethod.rates": [1.0]})["loss"]["test"] == pytest.approx(plain, rel=1e-4)
    assert usual["loss"]["test"] != pytest.approx(plain, rel=1e-4)


def test_clients_train_the_widest_level_that_they_afford(usual: Any) -> None:
    macs = {model["key"]: model["cost"]["forward_macs"] for model in usual["models"]}
    smallest = min(macs.values())
    for client in rows(usual.clients):
        affordable = [each for each in macs.values() if each <= client["capacity"]]
        assert macs[client["model"]] == max(affordable, default=smallest)
    assert len({client["model"] for client in rows(usual.clients)}) > 1


def test_channels_that_no_client_trains_keep_their_values(job: Any) -> None:
    half = {"mymethod.rates": [0.5]}
    jobs = [job(f"half{rounds}", rounds=rounds, **half) for rounds in (1, 2)]
    one, two = (load_file(each.path / "models/global.safetensors") for each in jobs)
    for name, tensor in one.items():
        assert not torch.equal(tensor, two[name]), name
    last = len(one["conv1.weight"]) // 2  # channels from here on
    assert torch.equal(one["conv1.weight"][last:], two["conv1.weight"][last:])


def test_wide_clients_can_count_more(job: Any, usual: Any) -> None:
    assert job("even", **{"mymethod.size_power": 0})["loss"]["test"] != usual["loss"]["test"]


@pytest.mark.parametrize(("key", "value"), [("rates", [2.0]), ("rates", [0.5, 1.0]), ("size_power", -1)])
def test_a_bad_hyperparameter_is_one_sentence(job: Any, key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"mymethod.{key} is "):
        job("bad", **{f"mymethod.{key}": value})
