"""All clients' devices as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.matching import match_rows
from fedscale_ext.population.resample import resample_availability, resample_capacity
from fedscale_ext.population.traces import read_availability, read_capacity


@dataclass(frozen=True)
class Population:
    """Columns over clients, indexed by client - 1; ``source`` says whether they are traced or resampled, and how
    clients got their rows.

    ``computation_ms`` is the forward latency per sample of the reference model in ms,
    ``communication_kbps`` the bandwidth in kbit/s; ``availability`` None means always online.
    """

    computation_ms: np.ndarray
    communication_kbps: np.ndarray
    availability: Availability | None
    source: str

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self.computation_ms)

    def ever_online(self) -> np.ndarray:
        """bool[size]: who is online at some time."""
        return np.ones(self.size, dtype=bool) if self.availability is None else self.availability.ever_online()


def load_population(
    clients: Sequence[str],
    device_conf_file: str | None,
    device_avail_file: str | None,
    seed: int,
    match: str = "auto",
) -> Population:
    """Devices for the ``clients`` of these names, which have rows of a trace as :func:`match_rows` has it.

    Each file is a trace, or ``resampled`` to draw from FedScale's published marginals; without
    ``device_conf_file`` devices are resampled, without ``device_avail_file`` clients are always online.
    ``match`` is the key ``device_match``. Raises UserError for files that cannot be used.
    """
    num_clients = len(clients)
    if num_clients < 1:
        raise UserError("a population needs at least one client: the training data names none")
    if device_conf_file in (None, RESAMPLED):
        trace, rows = resample_capacity(num_clients, seed), np.arange(num_clients)
        source = "resampled from FedScale's published device marginals"
    else:
        trace = read_capacity(_existing(device_conf_file, "device_conf_file"))
        device = match_rows(trace.client_id, clients, match, f"device_conf_file {device_conf_file}")
        rows = device.rows
        source = f"{'resampled, in' if trace.resampled else 'traced:'} {device_conf_file} {device.how}"
    availability = None
    if device_avail_file == RESAMPLED:
        availability = Availability(resample_availability(num_clients, seed), num_clients)
        source += ", online by resampling FedScale's published hourly fractions"
    elif device_avail_file is not None:
        online = read_availability(_existing(device_avail_file, "device_avail_file"))
        device = match_rows(online.client_id, clients, match, f"device_avail_file {device_avail_file}")
        availability = Availability(online.take(device.rows) if device.by_id else online, num_clients)
        source += f", online by {'resampling, in ' if online.resampled else ''}{device_avail_file} {device.how}"
    return Population(trace.computation_ms[rows], trace.communication_kbps[rows], availability, source)


def _existing(path: str | None, key: str) -> Path:
    file = Path(str(path)).expanduser()
    if not file.is_file():
        raise UserError(f"{key} {file} is missing: give FedScale's trace file, or set {key}: {RESAMPLED}")
    return file
