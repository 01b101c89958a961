"""The table of types adds up what each participant's rounds cost, also where a client's work differs by round."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext
from fedscale_ext.metrics.device_types import device_type_figures
from fedscale_ext.metrics.job_folder.round_records import read_records

TWO = {"types": ["single_exit_mlp", "cnn_small"], "ranges": ["1-4", "5-7"]}

#: Keys of jobs in which what a client does in a round differs, and the figure that therefore differs.
JOBS: dict[str, tuple[dict[str, Any], str]] = {
    "fedskel": ({"ranges": ["1-2", "3-5", "6-7"], "every": 2}, "client_upload_bytes"),
    "fedl2g": ({**TWO, "representation": 8, "warm_up": 2}, "client_computation_s"),
    "fedkd": ({**TWO, "start_energy": 0.5, "end_energy": 0.9}, "client_download_bytes"),
    "fedproto": ({**TWO, "representation": 8}, "client_download_bytes"),
    "dsfl": ({**TWO, "samples": 5, "epochs": 1}, "client_download_bytes"),
    "heterofl": ({"levels": "groups", "rates": [1.0, 0.5], "groups": [3, 4]}, "client_computation_s"),
}
MORE: dict[str, dict[str, Any]] = {
    "heterofl": {"sample_mode": "pyramidfl", "pyramidfl_dropout_low": 0.2},
    "dsfl": {"public_samples": 12},
}


@pytest.mark.parametrize("method", JOBS)
def test_figures_by_type_are_sums_over_the_rounds(method: str, job_file: Path, monkeypatch: Any) -> None:
    arguments: dict[str, np.ndarray] = {}

    def spy(records: Any, type_of_client: np.ndarray, *others: Any, **more: Any) -> dict[str, Any]:
        arguments["types"] = type_of_client
        return device_type_figures(records, type_of_client, *others, **more)

    monkeypatch.setattr("fedscale_ext.methods.type_figures.device_type_figures", spy)
    monkeypatch.setattr("fedscale_ext.metrics.device_types.settled", lambda tested: len(tested) - 1)  # all rounds count
    keys, differing = JOBS[method]
    summary = fedscale_ext.run(
        job_file,
        method=method,
        model="cnn_small",
        rounds=4,
        eval_interval=2,
        num_participants=5,
        **{f"{method}.{name}": value for name, value in keys.items()},
        **MORE.get(method, {}),
    )
    records = read_records(Path(summary["log_dir"]) / "metrics.jsonl")
    by_client: dict[int, set[float]] = {}
    traffic, seconds = np.zeros(7), np.zeros(7)
    for record in records:
        assert sum(record.client_download_bytes) == record.download_bytes
        assert sum(record.client_upload_bytes) == record.upload_bytes
        assert [
            one + other for one, other in zip(record.client_computation_s, record.client_communication_s, strict=True)
        ] == record.client_durations_s
        clients = np.array(record.participants) - 1
        traffic[clients] += np.array(record.client_download_bytes) + record.client_upload_bytes
        seconds[clients] += record.client_durations_s
        for client, value in zip(record.participants, getattr(record, differing), strict=True):
            by_client.setdefault(client, set()).add(value)
    assert any(len(values) > 1 for values in by_client.values())
    *types, every = summary["results"]["types"]
    for index, row in enumerate(types):
        mine = arguments["types"] == index
        assert row["traffic_mb"] == pytest.approx(traffic[mine].sum() / 1e6)
        assert row["time_s"] == pytest.approx(seconds[mine].mean())
    assert every["traffic_mb"] == pytest.approx(summary["cost"]["network_total_mb"])
    assert every["time_s"] == pytest.approx(seconds.mean())
