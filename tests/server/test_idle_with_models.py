"""Settings that the models of a job leave without effect are told when it begins."""

from pathlib import Path
from typing import Any

import pytest
from methods.harness import server

import fedscale_ext
from fedscale_ext.config.job_config import make_config, with_values
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError


@pytest.mark.parametrize(
    ("keys", "sentences"),
    [
        ({"model": "cnn_small"}, []),
        ({"model": "cnn_small", "bn_statistics": "federated"},
         ["bn_statistics does nothing: no model of this job has BatchNorm"]),
        ({"model": "cnn_small", "bn_statistics": "federated", "bn_statistics_clients": 2},
         ["bn_statistics, bn_statistics_clients do nothing: no model of this job has BatchNorm"]),
        ({"bn_statistics": "running"}, []),  # of cells, which have BatchNorm
    ],
)  # fmt: skip
def test_statistics_of_models_without_batch_normalisation(keys: dict[str, Any], sentences: list[str]) -> None:
    keys = dict(keys)
    aggregator = server(method_class("fedavg"), "fedavg", model=keys.pop("model", "nasbench201_base"))
    aggregator.config = with_values(aggregator.config, **keys)
    assert list(aggregator.settings_idle_with_models()) == sentences


@pytest.mark.parametrize("method", ["fd", "local"])
def test_statistics_of_one_type_suffice(method: str) -> None:
    aggregator = server(method_class(method), method, types=["cnn_small", "nasbench201_base"], groups=[3, 3])
    aggregator.config = with_values(aggregator.config, bn_statistics="federated")
    assert not list(aggregator.settings_idle_with_models())


def test_a_job_tells(job_file: Path) -> None:
    keys = {"model": "cnn_small", "rounds": 1, "local_steps": 1, "num_participants": 2, "bn_statistics": "federated"}
    summary = fedscale_ext.run(job_file, method="heterofl", **{"heterofl.dense": True}, **keys)
    assert "bn_statistics does nothing: no model of this job has BatchNorm" in summary["notices"]
    assert "heterofl.dense does nothing: the family 'cnn' has no dense form" in summary["notices"]


def test_an_order_of_clients_for_groups_that_the_method_does_not_have_is_refused() -> None:
    keys = {"method": "fedavg", "model": "cnn_small", "groups_by": "main_class"}
    with pytest.raises(UserError, match=r"^groups_by is main_class, and fedavg deals no groups to clients; remove"):
        method_class("fedavg").check_settings(make_config({}, keys))
