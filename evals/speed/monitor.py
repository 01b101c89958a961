"""Run a command and watch its whole tree of processes: processor seconds over time and peak memory of each."""

import re
import subprocess
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_EVERY_S = 0.25


@dataclass
class Seen:
    """What was last seen of one process; ``peak_mb`` counts pages that it shares with others too."""

    process: psutil.Process
    role: str
    cpu_s: float = 0.0
    peak_mb: float = 0.0


@dataclass
class Watched:
    """How a command went: its exit code (None: it was ended after its limit), and the tree's cost.

    ``cpu`` are samples of (seconds since 1970, processor seconds that the tree had used by then).
    """

    code: int | None
    cpu: list[tuple[float, float]] = field(default_factory=list)
    processes: list[Seen] = field(default_factory=list)

    def cpu_between(self, begin: float, end: float) -> float:
        """Processor seconds of the tree in a span of time, interpolated between samples."""
        return _at(self.cpu, end) - _at(self.cpu, begin)

    def peaks(self) -> list[tuple[str, float]]:
        """(role, peak memory in MB) of each process, the largest first."""
        found = [(seen.role, round(seen.peak_mb, 1)) for seen in self.processes]
        return sorted(found, key=lambda pair: -pair[1])


def _at(samples: list[tuple[float, float]], moment: float) -> float:
    index = bisect_right(samples, (moment, float("inf")))
    if index == 0 or index == len(samples):
        return samples[min(index, len(samples) - 1)][1] if samples else 0.0
    (t0, c0), (t1, c1) = samples[index - 1], samples[index]
    return c0 + (c1 - c0) * (moment - t0) / (t1 - t0) if t1 > t0 else c1


def role(command: list[str]) -> str:
    """What a process is: by FedScale's rank (0 is the aggregator), else by its program."""
    rank = re.search(r"--this_rank[= ](\d+)", " ".join(command))
    if rank:
        return "aggregator" if rank[1] == "0" else f"executor {rank[1]}"
    return Path(command[0]).name.split(" ")[0] if command else ""


def run(command: list[str], *, env: Mapping[str, str], cwd: Path, log: Path, limit_s: float) -> Watched:
    """Run a command to its end with its output in ``log``; what it left running is ended too."""
    with log.open("wb") as output:
        root = subprocess.Popen(command, env=dict(env), cwd=cwd, stdout=output, stderr=subprocess.STDOUT)
        result = Watched(None)
        found: dict[tuple[int, float], Seen] = {}
        ended = threading.Event()

        def watch() -> None:
            while not ended.is_set():
                _look(root.pid, found)
                result.cpu.append((time.time(), sum(seen.cpu_s for seen in found.values())))
                ended.wait(_EVERY_S)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            result.code = root.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            ended.set()
            watcher.join()
            _end(list(found.values()))
            root.wait()
    result.processes = list(found.values())
    return result


def _look(pid: int, found: dict[tuple[int, float], Seen]) -> None:
    with suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            with suppress(psutil.Error):
                key = (process.pid, process.create_time())
                seen = found.setdefault(key, Seen(process, ""))
                seen.role = role(process.cmdline()) or seen.role  # it changes when a process becomes a program
                times = process.cpu_times()
                seen.cpu_s = max(seen.cpu_s, times.user + times.system)
                seen.peak_mb = max(seen.peak_mb, _peak_mb(process))


def _peak_mb(process: psutil.Process) -> float:
    """Highest resident memory of a process so far; where the system does not tell, what it is now."""
    with suppress(OSError, StopIteration, IndexError, ValueError):
        lines = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    return process.memory_info().rss / 2**20


def _end(processes: list[Seen]) -> None:
    for seen in processes:
        with suppress(psutil.Error):
            if seen.process.is_running():
                seen.process.kill()
    psutil.wait_procs([seen.process for seen in processes], timeout=5)
