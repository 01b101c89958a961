"""FedScale's virtual clock, with the MACs and bytes of the model that each client trains."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.model_spec import Cost

TRAINING_FACTOR = 3.0  # forward and backward take three times the forward pass (FedScale's augmentation_factor)


def completion_times(
    computation_ms: np.ndarray,
    communication_kbps: np.ndarray,
    *,
    macs: np.ndarray | float,
    down_bytes: np.ndarray | float,
    up_bytes: np.ndarray | float,
    samples: np.ndarray | int,
    reference_macs: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds that each device takes, by FedScale's ClientMetadata.get_completion_time.

    Args:
        computation_ms: Forward latency in ms per sample of the reference model, float64 [n].
        communication_kbps: Bandwidth in kbit/s, float64 [n].
        macs: Forward MACs per sample of each device's model; latency grows in proportion.
        down_bytes: Bytes that each device receives.
        up_bytes: Bytes that each device sends.
        samples: Samples of all local steps together, one number or int [n].
        reference_macs: Forward MACs per sample of the reference model.

    Returns:
        Seconds of computation and seconds of communication, both float64 [n].

    """
    scale = np.asarray(macs, dtype=np.float64) / reference_macs
    computation = TRAINING_FACTOR * np.asarray(samples, dtype=np.float64) * computation_ms / 1000.0 * scale
    both_ways = np.asarray(down_bytes, dtype=np.float64) + np.asarray(up_bytes, dtype=np.float64)
    return computation, both_ways * 8.0 / 1024.0 / communication_kbps  # FedScale's kbit has 1,024 bits


def whole_model_seconds(
    computation_ms: np.ndarray,
    communication_kbps: np.ndarray,
    costs: Sequence[Cost],
    samples: np.ndarray | int,
    reference_macs: float,
) -> np.ndarray:
    """Return the seconds, float64 [n], that devices take to receive a model, train it, and send it back.

    ``costs`` are those of each device's model; the other arguments are those of :func:`completion_times`.
    """
    size = np.array([cost.bytes for cost in costs], dtype=np.float64)
    computation, communication = completion_times(
        computation_ms,
        communication_kbps,
        macs=np.array([cost.forward_macs for cost in costs], dtype=np.float64),
        down_bytes=size,
        up_bytes=size,
        samples=samples,
        reference_macs=reference_macs,
    )
    return computation + communication
