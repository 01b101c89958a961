"""What fails in a unit, and who pays for it: the client that is to blame, else the unit, never the executor."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from job_results import assert_equal, result

import fedscale_ext
from fedscale_ext.core.client_config import ClientConfig
from fedscale_ext.core.errors import UserError
from fedscale_ext.executor import lost_device
from fedscale_ext.tasks.evaluate import Evaluate
from fedscale_ext.tasks.train import Train
from fedscale_ext.training.local_training import MultiModelClient
from fedscale_ext.util.machine_errors import of_machine
from fedscale_ext.util.torch_devices import device_of

BAD = 3  # a client


def run(job_file: Path, name: str, **keys: Any) -> dict[str, Any]:
    keys = {"model": "cnn_small", "rounds": 1, "num_participants": 7, "job_name": name, **keys}
    fedscale_ext.run(job_file, **keys)
    return result(job_file.parent / "logs" / name / "logs")


def blame(client: int) -> Any:
    """A client's batches, of which one client's raise."""
    plain = MultiModelClient.batches

    def batches(self: Any, samples: int, conf: ClientConfig) -> Any:
        if conf.client_id == client:
            raise ValueError("no such label")
        return plain(self, samples, conf)

    return batches


def test_an_exception_in_a_cohort_fails_the_client_to_blame_alone(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiModelClient, "batches", blame(BAD))
    together = run(job_file, "together", cohort_size=7)
    assert together["rounds"][0]["failed"] == {"ValueError: no such label": 1}
    assert together["rounds"][0]["participants"] == [1, 2, 4, 5, 6, 7]
    # the cohort of which it was one has trained one by one; cohorts of other units are as they were
    again = run(job_file, "again", cohort_size=7)
    assert_equal(together, again)


def test_an_error_of_the_machine_fails_the_unit_which_is_tried_again(
    job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(job_file, "expected", cohort_size=7)
    plain, raised = MultiModelClient.train_cohort, []

    def short(self: Any, data: Any, cohort: Any, confs: Any) -> Any:
        if not raised:
            raised.append(1)
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 byte")
        return plain(self, data, cohort, confs)

    monkeypatch.setattr(MultiModelClient, "train_cohort", short)
    assert_equal(expected, run(job_file, "short", cohort_size=7))
    assert raised


@pytest.mark.parametrize(
    ("error", "machine"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (OSError(5, "Input/output error"), True),
        (RuntimeError("shapes differ"), False),
        (ValueError("out of memory of words"), False),
        (FloatingPointError(), False),
    ],
)
def test_whose_fault_it_is(error: Exception, machine: bool) -> None:
    assert of_machine(error) is machine


def test_a_gpu_that_refuses_all_work_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(device: torch.device) -> None:
        raise RuntimeError("device-side assert triggered")

    lost_device.check_device(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    with pytest.raises(SystemExit, match="cuda:0 does not work any more: device-side assert"):
        lost_device.check_device(torch.device("cuda:0"))


@pytest.mark.parametrize(
    ("gpus", "device", "said"),
    [(0, None, "torch finds no GPU: set use_cuda: False"), (2, "cuda:2", "no GPU 2, there are 2: correct worker_ips")],
)
def test_a_gpu_that_is_not_there_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, gpus: int, device: str | None, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(UserError, match=said):
        device_of(Namespace(use_cuda=True, cuda_device=device))
    assert device_of(Namespace(use_cuda=False, cuda_device=device)) == torch.device("cpu")


def test_a_unit_that_raises_twice_is_dropped_and_counted(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, tried = Train.run, []

    def train(self: Any, worker: Any, header: dict[str, Any]) -> Any:
        if BAD in [item["client"] for item in header["items"]]:
            tried.append(header["attempt"])
            raise ValueError("the whole unit")
        return plain(self, worker, header)

    monkeypatch.setattr(Train, "run", train)
    (entry,) = run(job_file, "dropped")["rounds"]
    assert tried == [1, 2]
    assert entry["failed"] == {"its work unit failed 2 times: ValueError: the whole unit": 2}
    assert BAD not in entry["participants"] and len(entry["participants"]) == 5


def test_clients_that_cannot_be_tested_count_as_untested(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Evaluate.run
    monkeypatch.setattr("fedscale_ext.tasks.evaluation_figures._UNIT_SAMPLES", 1)

    def test(self: Any, worker: Any, header: dict[str, Any]) -> Any:
        if BAD in header["clients"]:
            raise ValueError("a spoilt sample")
        return plain(self, worker, header)

    whole = run(job_file, "whole")["rounds"][0]["evaluation"]
    monkeypatch.setattr(Evaluate, "run", test)
    part = run(job_file, "part")["rounds"][0]["evaluation"]
    assert whole["columns"][3][BAD - 1] > 0
    for one, other in zip(whole["columns"], part["columns"], strict=True):
        assert other == [0 if client == BAD else value for client, value in enumerate(one, 1)]
    correct, _, loss, count = map(sum, part["columns"])
    assert part["named"]["global"] == pytest.approx([correct / count, loss / count])


@pytest.mark.parametrize("least", [None, 6, 7])
def test_a_round_with_too_few_updates_ends_the_job(
    job_file: Path, monkeypatch: pytest.MonkeyPatch, least: int | None
) -> None:
    monkeypatch.setattr(MultiModelClient, "batches", blame(BAD))
    if least != 7:
        run(job_file, "enough", min_updates=least)
        return
    with pytest.raises(UserError, match=r"round 1: 6 of 7 clients gave an update and min_updates is 7, first: ValueE"):
        run(job_file, "too_few", min_updates=least)


def test_min_updates_above_the_participants_is_refused(job_file: Path) -> None:
    with pytest.raises(UserError, match="min_updates 8 is above num_participants 7"):
        run(job_file, "refused", min_updates=8)
