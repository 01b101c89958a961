"""What decides the cohorts of a job, and how units are cut to fit into messages."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import fedscale_ext
from fedscale_ext.config.job_config import load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.methods.averaging.fedavg import FedAvgAggregator
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.server.round.dispatcher import Dispatcher
from fedscale_ext.util.stopwatch import Stopwatch

MB = 1024 * 1024


def dispatcher(job_file: Path, *settings: str, model_mb: int = 1) -> Dispatcher:
    model = SimpleNamespace(cost=SimpleNamespace(bytes=model_mb * MB))
    job: Any = SimpleNamespace(config=load_config(job_file, settings), notice=None, returns="sum", pool={"m": model})
    method: Any = None
    executor: Any = SimpleNamespace(device="cpu", device_name="a processor", versions={"torch": "2"})
    return Dispatcher(job, method, executor, lambda *_: iter(()), privacy=None, watch=Stopwatch(), reports_norms=False)


@pytest.mark.parametrize("setting", ["client_optimizer=adam", "local_steps=9", "clip_norm=1", "control_variates=True"])
def test_a_cohorts_size_is_not_that_of_a_job_that_trains_otherwise(job_file: Path, setting: str) -> None:
    spec = ModelSpec.make("toy", width=3)
    assert dispatcher(job_file, setting).cohort_sizes.key(spec) != dispatcher(job_file).cohort_sizes.key(spec)
    assert dispatcher(job_file, "rounds=9").cohort_sizes.key(spec) == dispatcher(job_file).cohort_sizes.key(spec)


def test_answers_with_clients_states_fit_into_messages(job_file: Path) -> None:
    small = dispatcher(job_file, "max_message_mb=16", model_mb=3)
    clients = list(range(10))
    assert small.in_messages(clients, "m", []) == [clients]
    assert [len(part) for part in small.in_messages(clients, "m", [], states=True)] == [3, 3, 4]
    tensors: Any = SimpleNamespace(most=lambda key: 2 * MB, in_each_message=1 * MB)
    assert max(len(part) for part in small.in_messages(clients, "m", [tensors])) == (16 - 4 - 3 - 1) // 2
    assert max(len(part) for part in small.in_messages(clients, "m", [tensors], states=True)) == (16 - 4) // (3 + 2)
    with pytest.raises(
        UserError, match="model m does not fit into a message of max_message_mb=4: raise max_message_mb"
    ):
        dispatcher(job_file, "max_message_mb=4").in_messages(clients, "m", [], states=True)


def test_weights_whose_sum_is_rounded_count_in_cohorts(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # in doubles, 1e16 + 1 is 1e16, but 1e16 + 2 is not: what is added first decides
    monkeypatch.setattr(FedAvgAggregator, "weight", lambda self, item: 1e16 if item.client in (1, 4) else 1.0)
    job = fedscale_ext.run(job_file, method="fedavg", num_participants=7, unit_size=7, cohort_size=2)
    assert not any(record.failed for record in read_records(job.path / "metrics.jsonl"))
