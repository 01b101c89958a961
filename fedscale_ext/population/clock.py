"""FedScale's virtual clock, with the MACs and bytes of the model that a client really trains."""

import numpy as np

TRAINING_FACTOR = 3.0  # forward and backward take three times the forward pass (FedScale's augmentation_factor)


def completion_times(
    computation_ms: np.ndarray,
    communication_kbps: np.ndarray,
    *,
    macs: np.ndarray | float,
    down_bytes: np.ndarray | float,
    up_bytes: np.ndarray | float,
    local_steps: int,
    batch_size: np.ndarray | int,
    reference_macs: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of computation and of communication of each device, both float64 [n].

    ``computation_ms`` is a device's forward latency in ms per sample of the reference model; a model
    of other size takes it times MACs / reference. ``communication_kbps`` is in kbit/s, and each direction
    carries its own bytes. Source: FedScale's ClientMetadata.get_completion_time.
    """
    samples = np.asarray(batch_size, dtype=np.float64) * local_steps
    scale = np.asarray(macs, dtype=np.float64) / reference_macs
    computation = TRAINING_FACTOR * samples * computation_ms / 1000.0 * scale
    both_ways = np.asarray(down_bytes, dtype=np.float64) + np.asarray(up_bytes, dtype=np.float64)
    return computation, kbit(both_ways) / communication_kbps


def kbit(size_bytes: np.ndarray | float) -> np.ndarray | float:
    """FedScale's kbit: 1,024 bits."""
    return size_bytes * 8.0 / 1024.0
