"""Times a population of 500,000 devices: reading FedScale's pickle and an npz, and selecting among those online.

    python evals/speed/population.py

The traces are generated. Prints seconds, milliseconds and memory; each figure is the best of five, but reading.
"""

import pickle
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.population.availability import Availability
from fedscale_ext.population.selection import select
from fedscale_ext.population.traces import read_capacity, resample_capacity
from fedscale_ext.streams import stream

DEVICES = 500_000


def timed(action: Callable[[], Any], repeats: int = 5) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(repeats):
        began = time.perf_counter()
        result = action()
        best = min(best, time.perf_counter() - began)
    return best, result


def main() -> None:
    drawn = resample_capacity(DEVICES, seed=1)
    rows = zip(drawn.client_id.tolist(), drawn.computation_ms.tolist(), drawn.communication_kbps.tolist(), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "client_device_capacity")
        path.write_bytes(pickle.dumps({key: {"computation": a, "communication": b} for key, a, b in rows}))
        seconds, trace = timed(lambda: read_capacity(path), 1)
        print(f"read FedScale's pickle of {len(trace.client_id):,} devices: {seconds:.2f} s")
        npz = Path(folder, "devices.npz")
        np.savez(npz, **dict(zip(("client_id", "computation", "communication"), vars(trace).values(), strict=True)))
        print(f"read the same as npz: {timed(lambda: read_capacity(npz))[0]:.3f} s")
    rng = np.random.default_rng(0)
    begin = np.sort(rng.uniform(0, 172_800, (DEVICES, 4)), axis=1)
    availability = Availability(
        np.arange(0, 4 * DEVICES + 1, 4), begin.ravel(), (begin + 10_000).ravel(), np.full(DEVICES, 172_800.0)
    )
    print(f"who is online: {1000 * timed(lambda: availability.online(1e5))[0]:.1f} ms")
    seconds, _ = timed(lambda: select(availability.online(1e5), 100, stream(1)))
    print(f"select 100 of those online: {1000 * seconds:.1f} ms")
    columns = [*vars(trace).values(), *vars(availability).values()]
    print(f"memory of all columns: {sum(column.nbytes for column in columns) / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
