"""Load 500,000 devices and select 100 online participants: seconds, milliseconds, memory.

    python evals/speed/population.py [--devices 500000]

Devices are resampled from FedScale's published marginals, written in FedScale's own pickle format,
and read back. Memory is what loading adds to the peak of a fresh process that has imported the package.
"""

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fedscale_ext.core.streams import stream
from fedscale_ext.population.population import load_population
from fedscale_ext.population.selection.participants import select
from fedscale_ext.population.traces.resampling import resample_availability, resample_capacity

SELECTIONS = 48
AVAILABILITY_CLIENTS = 107_749  # as in FedScale's client_behave_trace; clients beyond repeat them


def write_traces(folder: Path, devices: int) -> None:
    trace = resample_capacity(devices, 1)
    columns = (trace.client_id, trace.computation_ms, trace.communication_kbps)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    capacity = {key: {"computation": ms, "communication": kbps} for key, ms, kbps in rows}
    (folder / "capacity").write_bytes(pickle.dumps(capacity))
    np.savez(
        folder / "capacity.npz",
        client_id=trace.client_id,
        computation_ms_per_sample=trace.computation_ms,
        communication_kbps=trace.communication_kbps,
    )
    with open(folder / "capacity.csv", "w") as file:
        print("client_id,computation,communication", file=file)
        for key, row in capacity.items():
            print(key, row["computation"], row["communication"], sep=",", file=file)
    online = resample_availability(AVAILABILITY_CLIENTS, 1)
    active, inactive = online.active.astype(int).tolist(), online.inactive.astype(int).tolist()
    behave = {
        key: {"active": active[a:b], "inactive": inactive[a:b], "finish_time": 172800, "duration": 0, "model": ""}
        for key, a, b in zip(
            range(AVAILABILITY_CLIENTS), online.offsets[:-1].tolist(), online.offsets[1:].tolist(), strict=True
        )
    }
    (folder / "behave").write_bytes(pickle.dumps(behave))


def peak_mb() -> float:
    """Peak resident memory of this process since it started (Linux; ru_maxrss would inherit the parent's)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def measure(devices: int, capacity: str, availability: str | None) -> dict[str, float | str]:
    before = peak_mb()
    names = list(map(str, range(1, devices + 1)))
    begin = time.perf_counter()
    population = load_population(names, capacity, availability, 1)
    loaded = time.perf_counter() - begin
    times = []
    for hour in range(SELECTIONS):
        begin = time.perf_counter()
        if population.availability is None:
            eligible = np.ones(devices, dtype=bool)
        else:
            eligible = population.availability.online(3600.0 * hour + 1)
        chosen = select(eligible, 100, stream(1, hour, "select"))
        times.append(1000 * (time.perf_counter() - begin))
        assert len(chosen) == 100
    return {
        "capacity": Path(capacity).name,
        "availability": Path(availability or "always").name,
        "load_s": round(loaded, 2),
        "select_best_ms": round(min(times), 2),
        "select_median_ms": round(float(np.median(times)), 2),
        "select_worst_ms": round(max(times), 2),
        "added_peak_mb": round(peak_mb() - before),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=500_000)
    parser.add_argument("--one", nargs=2, metavar=("CAPACITY", "AVAILABILITY"), help="measure one in this process")
    args = parser.parse_args()
    if args.one:
        capacity, availability = args.one
        print(json.dumps(measure(args.devices, capacity, None if availability == "always" else availability)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_traces(folder, args.devices)
        files = [folder / "capacity", folder / "capacity.npz", folder / "capacity.csv", "resampled"]
        for case in [(file, "always") for file in files] + [
            (folder / "capacity", "resampled"),
            (folder / "capacity", folder / "behave"),
        ]:
            command = [sys.executable, __file__, "--devices", str(args.devices), "--one", *map(str, case)]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    main()
