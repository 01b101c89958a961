"""An explicit deadline bounds MACs: clients whose model takes longer are told, once, before the job and in it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext.config.job_config import load_config, make_config, with_values
from fedscale_ext.core.events import ignore_event
from fedscale_ext.core.model_spec import Cost
from fedscale_ext.core.types import Task
from fedscale_ext.entry.job_check import DataSets, check_job
from fedscale_ext.population.population import Population
from fedscale_ext.server.deadline_notices import DeadlineNotices
from fedscale_ext.server.round.stragglers import Schedule

LEVELS = {"method": "heterofl", "model": "cnn_small", "rounds": 1}
# a device needs 3 * 10 samples * 2 ms * 1 = 0.06 s for a model of reference_macs, and 0.25 s for 16 KiB there and back
DEVICES = Population(np.full(3, 2.0), np.full(3, 1024.0), None, "made")
TASK = Task((1, 8, 8), 5, np.array([4, 10, 10]), np.full(3, 4), 2, 5)
COSTS = [Cost(1000, 3000, 1, 16384), Cost(500, 1500, 1, 8192)]


def deadline_notices(notices: Any) -> list[str]:
    return [notice for notice in notices if "longer than deadline_s" in notice]


def test_a_level_that_takes_longer_than_the_deadline_is_told_by_a_check_and_the_job(
    job_file: Path, tmp_path: Path
) -> None:
    keys = {**LEVELS, "deadline_s": 0.1224}
    (sentence,) = deadline_notices(fedscale_ext.run(job_file, **keys)["notices"])
    assert sentence.startswith("5 of 7 clients take longer than deadline_s, 0.1224 s: the slowest takes 0.2 s; ")
    checked = check_job(with_values(load_config(job_file), **keys), DataSets(), tmp_path, ignore_event)
    assert deadline_notices(checked.notices) == [sentence]
    assert not deadline_notices(fedscale_ext.run(job_file, **LEVELS)["notices"])


def test_more_work_than_a_deadline_counts_is_told_in_its_round(job_file: Path) -> None:
    keys = {"model": "cnn_small", "num_participants": 7, "rounds": 2}
    slowest = fedscale_ext.run(job_file, **keys)["time"]["virtual_s"] / 2
    assert not deadline_notices(fedscale_ext.run(job_file, **keys, deadline_s=1.01 * slowest)["notices"])
    control = {**keys, "control_variates": True}
    (sentence,) = deadline_notices(fedscale_ext.run(job_file, **control, deadline_s=1.01 * slowest)["notices"])
    assert " of the 7 clients of round 1 take longer than deadline_s" in sentence


@pytest.mark.parametrize(("deadline_s", "late"), [(0.311, 0), (0.309, 2), (0.150, 2), (0.148, 3), (None, 0)])
def test_the_time_is_that_of_the_clients_model_and_samples(deadline_s: float | None, late: int) -> None:
    sentences: list[str] = []
    config = make_config({}, {"deadline_s": deadline_s, "reference_macs": 1000})
    notices = DeadlineNotices(config, sentences.append)
    for _ in range(2):
        notices.assigned(COSTS, np.array([1, 0, 0]), DEVICES, TASK)
    assert bool(sentences) == bool(late) and len(sentences) <= 1
    assert not late or sentences[0].startswith(f"{late} of 3 clients take longer")


def test_a_late_client_that_does_not_count_is_told_too() -> None:
    sentences: list[str] = []
    notices = DeadlineNotices(make_config({}, {"deadline_s": 1.0}), sentences.append)
    notices.scheduled(
        3, Schedule([], np.array([0.4, 0.7]), np.array([0.1, 0.3]), 1.0, np.array([7]), np.array([1.5]), 0)
    )
    notices.scheduled(4, Schedule([], np.array([8.0]), np.array([1.0]), 9.0, np.array([]), np.array([]), 0))
    assert len(sentences) == 1
    assert sentences[0].startswith(
        "1 of the 3 clients of round 3 take longer than deadline_s, 1 s: the slowest takes 1.5 s"
    )
