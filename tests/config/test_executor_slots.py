"""Executors by host and GPU, as ``worker_ips`` says."""

import pytest

from fedscale_ext.config.executor_slots import executor_configs, executor_slots
from fedscale_ext.config.job_config import make_config


def test_slots_are_one_executor_each() -> None:
    config = make_config({"worker_ips": ["a:[2,1]", "b:[0, 1]"]}, {})
    assert executor_slots(config) == [("a", 0), ("a", 0), ("a", 1), ("b", 1)]
    assert executor_configs(config) == "a:[2,1]=b:[0,1]"


@pytest.mark.parametrize("cluster", [{}, {"worker_ips": None}, {"worker_ips": ["localhost"]}])
def test_without_slots_a_cpu_runs_one_executor_per_usable_core(cluster: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    config = make_config(cluster, {"use_cuda": False})
    assert executor_slots(config) == [("localhost", 0)] * 3
    assert executor_configs(config) == "localhost:[3]"
    assert executor_slots(make_config(cluster, {"use_cuda": True})) == [("localhost", 0)]
    assert len(executor_slots(make_config({"worker_ips": ["localhost:[1]"]}, {"use_cuda": False}))) == 1
