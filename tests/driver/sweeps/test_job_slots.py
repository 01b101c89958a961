"""Jobs of a sweep side by side: by cores and memory, over all GPUs, and several on one where they fit."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedscale_ext.config.job_config import load_config
from fedscale_ext.driver.processes import Exit
from fedscale_ext.driver.sweeps import job_slots as module
from fedscale_ext.driver.sweeps import sweep
from fedscale_ext.driver.sweeps.gpus import Gpu
from fedscale_ext.driver.sweeps.job_slots import JobSlots, job_slots
from fedscale_ext.driver.tables import console

TOTAL = 80_000


class Machine:
    """GPUs whose jobs take ``mib`` each, once they have trained a round; a clock that runs with each look at it."""

    def __init__(self, count: int, mib: int = 10_000, step_s: float = 10.0) -> None:
        self.mib, self.step_s, self.now_s = mib, step_s, 0.0
        self.jobs: dict[str, list[str]] = {f"GPU-{number}": [] for number in range(count)}

    def gpus(self) -> list[Gpu]:
        return [Gpu(uuid, self.mib * len(jobs), TOTAL) for uuid, jobs in self.jobs.items()]

    def clock(self) -> float:
        self.now_s += self.step_s
        return self.now_s

    def slots(self, most: int, gpus_of_job: int = 1, by_memory: bool = True) -> JobSlots:
        return JobSlots(most, self.gpus(), gpus_of_job, by_memory, self.gpus, self.clock)

    def start(self, slots: JobSlots, job: str, trained: dict[str, bool]) -> bool:
        if not slots.admit(job, trained):
            return False
        for uuid in slots.environment(job)["CUDA_VISIBLE_DEVICES"].split(","):
            self.jobs[uuid].append(job)
        trained[job] = False
        return True


def test_on_the_cpu_only_the_number_counts() -> None:
    slots = JobSlots(2)
    assert slots.admit("a", {}) and slots.admit("b", {"a": False}) and not slots.admit("c", {"a": True, "b": True})
    assert slots.environment("a") == {} and slots.sentence() == "2 at once"


def test_jobs_are_spread_over_all_gpus_and_share_one_only_when_their_memory_is_known() -> None:
    machine, trained = Machine(2), {}
    slots = machine.slots(16)
    assert slots.sentence() == "2 at once on 2 GPUs, up to 16 if their memory suffices"
    assert machine.start(slots, "a", trained) and machine.start(slots, "b", trained)
    assert machine.jobs == {"GPU-0": ["a"], "GPU-1": ["b"]}
    assert not machine.start(slots, "c", trained)  # neither has trained a round
    trained["b"] = True
    assert not machine.start(slots, "c", trained)  # its GPU would be the first, whose job has not
    trained["a"] = True
    assert machine.start(slots, "c", trained) and machine.jobs["GPU-0"] == ["a", "c"]
    assert machine.start(slots, "d", trained) and machine.jobs["GPU-1"] == ["b", "d"]


@given(
    count=st.integers(1, 4), mib=st.integers(1_000, 90_000), most=st.integers(1, 20), gpus_of_job=st.integers(1, 2),
    ends=st.lists(st.integers(0, 19), max_size=10),
)  # fmt: skip
def test_no_gpu_is_filled_beyond_its_share(count: int, mib: int, most: int, gpus_of_job: int, ends: list[int]) -> None:
    machine, trained = Machine(count, mib), {}
    slots = machine.slots(most, gpus_of_job)
    if count < gpus_of_job:
        return
    for number in range(20):
        machine.start(slots, f"j{number}", trained)
        trained.update(dict.fromkeys(trained, True))
        if number in ends and trained:
            gone = next(iter(trained))
            del trained[gone]
            for jobs in machine.jobs.values():
                if gone in jobs:
                    jobs.remove(gone)
        assert len(trained) <= most
        for jobs in machine.jobs.values():
            assert len(jobs) <= 1 or len(jobs) * mib <= 0.8 * TOTAL
    if not ends:
        groups = count // gpus_of_job
        assert len(trained) == min(most, groups * max(1, int(0.8 * TOTAL) // mib), 20)


def test_jobs_of_two_gpus_get_two_and_one_that_is_left_over_stays_idle() -> None:
    machine, trained = Machine(5), {}
    slots = machine.slots(16, gpus_of_job=2)
    for job in "ab":
        assert machine.start(slots, job, trained)
    assert slots.environment("a") == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    assert slots.environment("b") == {"CUDA_VISIBLE_DEVICES": "GPU-2,GPU-3"}
    assert slots.sentence().startswith("2 at once on 4 GPUs")


def test_a_number_that_the_user_gives_counts_whatever_the_memory() -> None:
    machine, trained = Machine(2, mib=70_000), {}
    slots = machine.slots(3, by_memory=False)
    assert slots.sentence() == "3 at once on 2 GPUs"
    assert [machine.start(slots, job, trained) for job in "abcd"] == [True, True, True, False]
    assert machine.jobs == {"GPU-0": ["a", "c"], "GPU-1": ["b"]}


def test_the_memory_is_not_read_at_each_look() -> None:
    machine, trained = Machine(1, mib=70_000, step_s=1.0), {}
    slots = machine.slots(2)
    readings: list[int] = []
    slots._read = lambda: readings.append(1) or machine.gpus()  # type: ignore[func-returns-value]
    assert machine.start(slots, "a", trained)
    trained["a"] = True
    assert not any(machine.start(slots, "b", trained) for _ in range(10))
    assert len(readings) == 2  # of ten seconds


def test_a_gpu_that_is_not_told_of_any_more_takes_no_further_job() -> None:
    machine, trained = Machine(1), {}
    slots = machine.slots(2)
    assert machine.start(slots, "a", trained)
    trained["a"] = True
    slots._read = list
    assert not machine.start(slots, "b", trained)


@pytest.mark.parametrize(
    ("worker_slots", "gpus", "gigabytes", "most"),
    [("[1]", None, 64, 8), ("[3]", None, 64, 2), ("[16]", None, 64, 1), ("[1]", None, 4, 3), ("[1]", None, 0.1, 1),
     ("[1]", 0, 64, 1), ("[1]", 2, 64, 8), ("[1]", 2, 8, 2), ("[2,2]", 2, 64, 2), ("[1,1]", 1, 64, 1)],
)  # fmt: skip
def test_as_many_jobs_as_cores_and_memory_take(
    write_conf: Any, monkeypatch: pytest.MonkeyPatch, worker_slots: str, gpus: int | None, gigabytes: float, most: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=gigabytes * 1e9))
    monkeypatch.setattr(module, "read_gpus", Machine(gpus or 0).gpus)
    config = load_config(write_conf({"use_cuda": gpus is not None}, worker_ips=[f"localhost:{worker_slots}"]))
    assert job_slots(config, None).most == most
    assert job_slots(config, 5).most == 5


class Drivers:
    """Stands for the processes of a sweep: each ends well at once, and its environment is kept."""

    environments: dict[str, dict[str, str]]

    def __init__(self, log: Any) -> None:
        self.tails: dict[str, list[str]] = {}
        self.inbox: Any = None
        self._running: list[str] = []

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        Drivers.environments[name] = environment
        self.tails[name] = []
        self._running.append(name)

    def running(self) -> list[str]:
        return list(self._running)

    def next(self, deadline: float) -> Exit:
        return Exit(self._running.pop(0), 1)

    def stop(self, seconds: float) -> None:
        self._running.clear()


def test_each_job_of_a_sweep_sees_its_gpus_alone(write_conf: Any, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Drivers.environments = {}
    monkeypatch.setattr(sweep, "Processes", Drivers)
    monkeypatch.setattr(sweep, "job_slots", lambda config, at_once: Machine(2).slots(2))
    monkeypatch.setattr(sweep, "check_jobs", lambda *_: {})
    conf = str(write_conf(worker_ips=["localhost:[1]"]))
    sweep.start(conf, [], console(), console(stderr=True), seeds="0-2", grid=[], at_once=None, resume=False,
                supervise=False)  # fmt: skip
    shown = [environment["CUDA_VISIBLE_DEVICES"] for environment in Drivers.environments.values()]
    assert shown == ["GPU-0", "GPU-1", "GPU-0"]
