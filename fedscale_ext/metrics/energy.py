"""Energy of devices: modelled, from the virtual clock; nothing of it was measured on a device.

    energy = power of the device's class * seconds of computation
             + Wi-Fi's base power * seconds of communication + joules per bit, up and down

Wi-Fi's constants are those of Huang et al. (MobiSys 2012, Table 4), whose mW per Mbit/s are nJ per bit. The
classes' powers are assumptions, of the size that phones draw under sustained load. Devices are told apart by the
trace's latency: its median is 41 ms; 43 % of the devices have at most 30 ms, and 37 % more than 80 ms (from 82 ms on).
Ratios between methods are what this is good for.
"""

import numpy as np

CLASSES = ("fast", "middle", "slow")
LATENCY_MS = (30.0, 80.0)  # fast up to the first, slow above the second
POWER_W = (5.0, 3.5, 2.5)  # assumed, while computing
RADIO_W = 0.13286
UP_J_PER_BIT, DOWN_J_PER_BIT = 283.17e-9, 137.01e-9


def device_classes(computation_ms: np.ndarray) -> np.ndarray:
    """Place in ``CLASSES`` of each device, int64 [n], by its latency per sample of the reference model."""
    return np.searchsorted(LATENCY_MS, computation_ms, side="left")


def joules(
    computation_ms: np.ndarray,
    computation_s: np.ndarray,
    communication_s: np.ndarray,
    down_bytes: np.ndarray,
    up_bytes: np.ndarray,
) -> np.ndarray:
    """Modelled energy of each device for one participation, float64 [n]; all arguments [n]."""
    power = np.array(POWER_W)[device_classes(computation_ms)]
    bits = 8 * (up_bytes * UP_J_PER_BIT + down_bytes * DOWN_J_PER_BIT)
    return power * computation_s + RADIO_W * communication_s + bits
