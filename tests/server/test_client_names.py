"""The names that the data give clients reach devices and results."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_job import write_job_file

import fedscale_ext
from fedscale_ext.config.job_config import load_config, with_values
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions
from fedscale_ext.entry.in_process import run_in_process

NAMES = ["mill", "größe", "7", "hut"]
SPEED = {"mill": 20, "größe": 40, "7": 80, "hut": 160, "spare": 5}
JOB = {"rounds": 1, "model": "cnn_small", "local_steps": 1, "num_participants": 2, "job_name": "named"}


@pytest.fixture
def named_job(tmp_path: Path) -> Path:
    """A job on four clients with names."""
    rng = np.random.default_rng(1)
    client = np.repeat(NAMES, 6)
    x = rng.integers(0, 255, (len(client), 28, 28)).astype(np.uint8)
    np.savez(tmp_path / "named.npz", x=x, y=rng.integers(0, 3, len(client)), client=client)
    import_npz(tmp_path / "named.npz", tmp_path / "data", "femnist", NpzOptions(name="named"))
    return write_job_file(tmp_path / "data", tmp_path)


def devices(folder: Path, *names: str) -> str:
    path = folder / "boards.csv"
    lines = "".join(f"{name},{SPEED[name]},1000\n" for name in names)
    path.write_text(f"client_id,computation,communication\n{lines}", encoding="utf-8")
    return str(path)


def run(job: Path, **keys: Any) -> None:
    run_in_process(with_values(load_config(job), **{**JOB, **keys}))


def test_clients_get_their_own_devices_and_results_call_them_by_name(named_job: Path) -> None:
    file = devices(named_job.parent, "hut", "7", "spare", "größe", "mill")
    run(named_job, device_conf_file=file)
    folder = named_job.parent / "logs" / "named" / "logs"
    result = fedscale_ext.load(folder)
    rows = result.clients.to_dict("records") if hasattr(result.clients, "to_dict") else result.clients
    assert {row["name"]: row["computation_ms"] for row in rows} == {name: SPEED[name] for name in NAMES}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["clients"]["names"] == [row["name"] for row in rows]
    assert summary["population"] == f"traced: {file} by client_id (1 more row, of clients that the data lack)"
    worst = summary["clients"]["names"][summary["accuracy"]["worst_client"] - 1]
    assert f"(client {worst}" in (folder / "summary.md").read_text()


def test_a_client_without_a_device_ends_the_job_unless_order_is_asked_for(named_job: Path) -> None:
    file = devices(named_job.parent, "hut", "7", "mill")
    with pytest.raises(UserError, match=r"boards.csv has no row for 1 of 4 clients: 'größe'; add a row for each"):
        run(named_job, device_conf_file=file)
    run(named_job, device_conf_file=file, device_match="order")
    folder = named_job.parent / "logs" / "named" / "logs"
    assert "by order (3 devices, repeated)" in json.loads((folder / "summary.json").read_text())["population"]
