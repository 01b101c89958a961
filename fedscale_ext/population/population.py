"""All clients' devices as columns."""

from dataclasses import dataclass

import numpy as np

from fedscale_ext.errors import UserError
from fedscale_ext.population.availability import Availability
from fedscale_ext.population.traces import RESAMPLED, read_availability, read_capacity, resample_capacity


@dataclass(frozen=True)
class Population:
    """Columns over clients, indexed by client - 1; ``source`` says whether they are traced or resampled.

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


def load_population(
    num_clients: int, device_conf_file: str | None, device_avail_file: str | None, seed: int
) -> Population:
    """Devices for ``num_clients`` clients: client i has row (i - 1) mod n of a trace of n devices.

    ``device_conf_file`` is a trace file, or ``resampled`` to draw from FedScale's published marginals;
    ``device_avail_file`` a trace file, or None. Raises UserError for files that cannot be used.
    """
    if num_clients < 1:
        raise UserError("a population needs at least one client: the training data names none")
    if device_conf_file in (None, RESAMPLED):
        trace = resample_capacity(num_clients, seed)
        source = "resampled from FedScale's published device marginals"
    else:
        trace = read_capacity(str(device_conf_file))
        source = f"traced: {device_conf_file}"
    rows = np.arange(num_clients) % len(trace.client_id)
    availability = None
    if device_avail_file is not None:
        whole = read_availability(device_avail_file)
        availability = whole.take(np.arange(num_clients) % whole.size)
        source += f", online by {device_avail_file}"
    return Population(trace.computation_ms[rows], trace.communication_kbps[rows], availability, source)
