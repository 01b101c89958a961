"""The devices of all clients as columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.traces.matching import match_rows
from fedscale_ext.population.traces.notes import availability_note, capacity_note
from fedscale_ext.population.traces.reading import read_availability, read_capacity
from fedscale_ext.population.traces.resampling import resample_availability, resample_capacity


@dataclass(frozen=True)
class Population:
    """Columns over clients, indexed by client - 1.

    Attributes:
        computation_ms: Forward latency in ms per sample of the reference model, float64 [clients].
        communication_kbps: Bandwidth in kbit/s, float64 [clients].
        availability: When clients are online; None: always.
        source: Text that says whether devices are traced or resampled, and how they were matched to clients.
        notes: Sentences on files whose values look as if they were in another unit.

    """

    computation_ms: np.ndarray
    communication_kbps: np.ndarray
    availability: Availability | None
    source: str
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of clients."""
        return len(self.computation_ms)

    def ever_online(self) -> np.ndarray:
        """Return which clients are online at any time, bool [size]."""
        return np.ones(self.size, dtype=bool) if self.availability is None else self.availability.ever_online()


def load_population(
    clients: Sequence[str],
    device_conf_file: str | None,
    device_avail_file: str | None,
    seed: int,
    match: str = "auto",
) -> Population:
    """Load or resample the clients' devices.

    Args:
        clients: Names of the clients.
        device_conf_file: A capacity trace, or ``resampled`` to draw from FedScale's published marginals; None: the
        same.
        device_avail_file: An availability trace, or ``resampled``; None: clients are always online.
        seed: The job's seed, for resampling.
        match: How clients are matched to rows, the key ``device_match`` (:func:`match_rows`).

    Raises:
        UserError: If a file cannot be used, or there is no client.

    """
    num_clients = len(clients)
    notes: list[str | None] = []
    if num_clients < 1:
        raise UserError("a population needs at least one client: the training data names none")
    if device_conf_file in (None, RESAMPLED):
        trace, rows = resample_capacity(num_clients, seed), np.arange(num_clients)
        source = "resampled from FedScale's published device marginals"
    else:
        trace = read_capacity(_existing(device_conf_file, "device_conf_file"))
        notes.append(capacity_note(trace, f"device_conf_file {device_conf_file}"))
        device = match_rows(trace.client_id, clients, match, f"device_conf_file {device_conf_file}")
        rows = device.rows
        source = f"{'resampled, in' if trace.resampled else 'traced:'} {device_conf_file} {device.how}"
    availability = None
    if device_avail_file == RESAMPLED:
        availability = Availability(resample_availability(num_clients, seed), num_clients)
        source += ", online by resampling FedScale's published hourly fractions"
    elif device_avail_file is not None:
        online = read_availability(_existing(device_avail_file, "device_avail_file"))
        notes.append(availability_note(online, f"device_avail_file {device_avail_file}"))
        device = match_rows(online.client_id, clients, match, f"device_avail_file {device_avail_file}")
        availability = Availability(online.take(device.rows) if device.by_id else online, num_clients)
        source += f", online by {'resampling, in ' if online.resampled else ''}{device_avail_file} {device.how}"
    sentences = tuple(note for note in notes if note is not None)
    return Population(trace.computation_ms[rows], trace.communication_kbps[rows], availability, source, sentences)


def _existing(path: str | None, key: str) -> Path:
    file = Path(str(path)).expanduser()
    if not file.is_file():
        raise UserError(f"{key} {file} is missing: give FedScale's trace file, or set {key}: {RESAMPLED}")
    return file
