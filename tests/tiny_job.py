"""A job of a few seconds on generated data, for tests and for the scripts that disturb it at length."""

from pathlib import Path

import numpy as np

from fedscale_ext.data.importing.importers import import_npz
from fedscale_ext.data.importing.options import NpzOptions


def tiny_data(folder: Path) -> Path:
    """Seven generated clients in FEMNIST's layout; client 6 has 3 training samples, client 7 has one sample."""
    rng = np.random.default_rng(5)
    sizes = [30, 25, 20, 15, 35, 4, 1]
    client = np.repeat(np.arange(len(sizes)), sizes)
    label = rng.integers(0, 4, len(client))
    prototypes = rng.integers(0, 2, (4, 7, 7)).repeat(4, axis=1).repeat(4, axis=2) * 200
    noise = rng.integers(0, 50, (len(client), 28, 28))
    arrays = {"x": (prototypes[label] + noise).astype(np.uint8), "y": label, "client": client}
    np.savez(folder / "tiny.npz", **arrays)
    import_npz(folder / "tiny.npz", folder / "tiny", "femnist", NpzOptions(name="tiny generated"))
    return folder / "tiny"


def write_job_file(data: Path, folder: Path) -> Path:
    """A configuration for the data set ``data`` in ``folder``, where its logs go too."""
    path = folder / "job.yml"
    path.write_text(
        f"""
ps_ip: 127.0.0.1
worker_ips:
  - localhost:[2]
job_conf:
  - job_name: tiny
  - log_path: {folder}
  - time_stamp: logs
  - method: fedavg
  - data_set: femnist
  - data_dir: {data}
  - model: nasbench201_base
  - rounds: 2
  - num_participants: 4
  - local_steps: 2
  - batch_size: 5
  - eval_interval: 2
  - filter_less: 0
  - overcommitment: 1.0
  - unit_size: 2
  - cohort_size: 1
  - use_cuda: False
  - ps_port: 0
""",
        encoding="utf-8",
    )
    return path
