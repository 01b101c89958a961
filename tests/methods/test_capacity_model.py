"""With one ``capacity_model``, each device affords the same under all methods, whatever they send."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext import models
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.report.job.loading import load_job
from fedscale_ext.server.eligibility import weakest_cost
from methods.harness import server
from methods.small_space import written

TYPES = {"types": ["cnn_small", "nasbench201_base"], "ranges": ["1-3", "4-6"]}
LITTLE_TRAFFIC: dict[str, dict[str, Any]] = {
    "local": {},
    "fedproto": {**TYPES, "representation": 8},
    "fd": TYPES,
    "fml": TYPES,
}


@pytest.mark.parametrize("name", LITTLE_TRAFFIC)
def test_a_method_with_little_traffic_has_the_devices_of_fedavg(name: str) -> None:
    def weakest(method: str, **keys: Any) -> Cost:
        return weakest_cost(server(method_class(method), method, **keys))

    fedavg = weakest("fedavg", capacity_model="cnn_small")
    assert weakest(name, capacity_model="cnn_small", **LITTLE_TRAFFIC[name]) == fedavg
    # without the key, what a method sends itself counts
    aggregator = server(method_class(name), name, **LITTLE_TRAFFIC[name])
    assert weakest_cost(aggregator) == aggregator.smallest_cost() != models.cost(aggregator.smallest_spec())


def test_the_weakest_device_of_spider_affords_both_networks_and_exchanges_one(tmp_path: Path) -> None:
    def method(**keys: Any) -> Any:
        return server(method_class("spider"), "spider", shape=(1, 16, 16), model=str(written(tmp_path)), **keys)

    aggregator = method()
    one = aggregator.pool["global"].cost
    both = Cost(2 * one.forward_macs, 2 * one.training_macs, 2 * one.parameters, one.bytes)
    assert weakest_cost(aggregator) == both
    assert weakest_cost(method(capacity_model="cnn_small")) != both


def test_the_weakest_device_of_fednas_affords_the_mixture_that_it_searches(tmp_path: Path) -> None:
    def method(**keys: Any) -> Any:
        return server(method_class("fednas"), "fednas", shape=(1, 16, 16), model=str(written(tmp_path)), **keys)

    mixture = method().pool["supernet"].cost
    assert weakest_cost(method()) == mixture != models.cost(method().smallest_spec())
    assert weakest_cost(method(capacity_model="cnn_small")) != mixture


def test_capacities_are_equal_in_jobs(job_file: Any) -> None:
    keys: dict[str, Any] = {"model": "cnn_small", "capacity_model": "cnn_small", "rounds": 1, "progress": False}
    jobs = [
        load_job(fedscale_ext.run(job_file, **keys, method=name, job_name=name).path) for name in ("fedavg", "local")
    ]
    one, other = (job.clients.capacity for job in jobs if job.clients is not None)
    assert one.tolist() == other.tolist() and len(np.unique(one)) > 1
