"""Round records of a job that never ran, for the tests of what is written about jobs."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedscale_ext.core.model_spec import Cost, ModelSpec
from fedscale_ext.core.streams import stream
from fedscale_ext.core.types import Evaluation, Model, RoundRecord
from fedscale_ext.metrics.job_folder.header import JobHeader, job_header
from fedscale_ext.metrics.summary import JobResult, summarise

LINEAGE = {"m0": {"parent": None, "birth": 0, "steps": []},
           "m1": {"parent": "m0", "birth": 33, "steps": ["widen c0", "deepen c1"]}}  # fmt: skip


def evaluation(round: int, accuracies: list[float], *, samples: int = 10, untested: int = 0) -> Evaluation:
    """Each accuracy's client has ``samples`` test samples; ``untested`` more clients have none."""
    count = np.array([samples] * len(accuracies) + [0] * untested)
    correct = np.array([_nearest(value * samples) for value in accuracies] + [0] * untested, dtype=np.int64)
    return Evaluation(
        round=round,
        serve=tuple(f"m{client % 2}" for client in range(len(count))),
        correct=correct,
        top5=np.minimum(correct + 1, count),
        loss=(1.5 - correct / samples) * count,
        count=count,
        named={"largest": (0.25, 1.75)},
    )


def _nearest(value: float) -> int:
    return int(value + 0.5)


def record(number: int, *, clients: int = 60, evaluated: bool = False, rounds: int = 100) -> RoundRecord:
    """Round ``number`` of a job whose accuracy rises and whose second and third model come later."""
    rng = stream("synthetic", number)
    participants = sorted(int(client) + 1 for client in rng.choice(clients, 20, replace=False))
    keys = ["m0"] + ["m1"] * (number > rounds // 3) + ["m2"] * (number > rounds // 1.5)
    chosen = rng.choice(keys, len(participants))
    assignments = {key: int((chosen == key).sum()) for key in keys if (chosen == key).any()}
    durations = rng.lognormal(1.5, 0.8, len(participants)).tolist()
    reached = 0.75 * (1 - np.exp(-number / (0.25 * rounds)))
    result = None
    if evaluated:
        accuracies = np.clip(reached + 0.13 * stream("clients").standard_normal(clients), 0, 1)
        result = evaluation(number, accuracies.tolist(), samples=24, untested=2)
    return RoundRecord(
        round=number,
        virtual_clock_s=61.7 * number,
        round_duration_s=61.7,
        client_durations_s=durations,
        wall_s=0.5,
        selected=26,
        participants=participants,
        assignments=assignments,
        offline=3,
        stragglers=6,
        failed={"not finite": 1} if number % 10 == 0 else {},
        train_loss=float(4.1 * np.exp(-number / (0.3 * rounds)) + 0.4 + 0.1 * rng.standard_normal()),
        learning_rate=0.05,
        models=len(keys),
        forward_macs=1e9,
        training_macs=3e9,
        download_bytes=2_000_000,
        upload_bytes=1_000_000,
        client_download_bytes=[100_000] * len(participants),
        client_upload_bytes=[50_000] * len(participants),
        client_computation_s=[0.75 * seconds for seconds in durations],
        client_communication_s=[0.25 * seconds for seconds in durations],
        evaluation=result,
    )


def with_accuracy(number: int, accuracy: float) -> RoundRecord:
    """Round ``number`` with a test of one client of 1,000 samples."""
    return dataclasses.replace(record(number), evaluation=evaluation(number, [accuracy], samples=1000))


def records(rounds: int = 100, every: int = 5, **more: Any) -> list[RoundRecord]:
    return [record(n, rounds=rounds, evaluated=n == 1 or n % every == 0, **more) for n in range(1, rounds + 1)]


def models() -> list[Model]:
    """Two models; m1 has a buffer, a scalar and a view of another tensor's memory."""
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7
    small = Model("m0", ModelSpec.make("toy", widths=(3, 4)), {"weight": weight}, Cost(12, 36, 12, 48), version=7)
    state = {
        "weight": weight.t(),
        "tied": weight,
        "seen": torch.tensor(5),
        "mask": torch.tensor([True, False]),
    }
    large = Model("m1", ModelSpec.make("toy", widths=(4, 3), name="größer"), state, Cost(24, 72, 24, 106))
    return [small, large]


def header(*, generated: bool = True) -> JobHeader:
    return job_header(
        job_name="synthetic",
        method="fedtrans",
        params={"beta": 0.003},
        config={"rounds": 100, "log_path": Path("logs")},
        seed=1,
        data_name="femnist",
        data_generated=generated,
        data_digest="ab" * 32,
        population="resampled from the published marginals",
        num_clients=62,
    )


def summary(lineage: dict[str, Any] = LINEAGE) -> dict[str, Any]:
    """Of a job in which m1 was born of m0, or with another lineage."""
    return summarise(header(), models(), JobResult(records(), lineage=lineage))
