"""The devices of a task: five kinds, each of which affords twice the MACs of the one before it.

Kinds are dealt to clients in equal numbers, by a draw of the seed. A client's bandwidth is drawn from the figures of
FedScale's trace.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedscale_ext.core.streams import stream
from fedscale_ext.population.traces.resampling import resample_capacity
from fedscale_ext.util.atomic_files import write_atomic

KINDS = 5
SLOWEST_MS = 160.0
"""Milliseconds per sample of the weakest kind; kind k takes ``SLOWEST_MS / 2**k``."""


def kinds_of(clients: int, seed: int) -> np.ndarray:
    """Return the kind of each client's device: int64 [clients] in 0..4, each as often as the others."""
    return stream(seed, "benchmark", "kinds").permutation(np.arange(clients) % KINDS)


def write_devices(names: Sequence[str], seed: int, path: Path) -> Path:
    """Write the device trace of clients by name, and return its path."""
    bandwidth = resample_capacity(len(names), seed).communication_kbps
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["client_id", "computation", "communication"])
    rows.writerows(
        [name, SLOWEST_MS / 2 ** int(kind), round(float(kbps), 3)]
        for name, kind, kbps in zip(names, kinds_of(len(names), seed), bandwidth, strict=True)
    )
    write_atomic(path, text.getvalue())  # workers write and read it at once
    return path
