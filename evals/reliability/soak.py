"""Does a long job's memory grow? Samples each process of a job of many rounds and fits a line.

    python -m evals.reliability.soak --work /tmp/soak

FedTrans on 12 generated clients with 2 executors, a checkpoint after each round and an evaluation every tenth.
Memory is what is the process's own (USS), taken when a round is finished, but for the last, after which the results
are written. The line is fitted after the first fifth of the rounds, in which the chain of models grows to its end
(each model has its modules on the executors) and caches fill. Writes soak.md beside this file; exit code 1 where a
process grows by more than 1 MB per 100 rounds.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import yaml

from evals.speed.data import prepare
from evals.speed.machine import model_name
from evals.speed.monitor import role

HERE = Path(__file__).resolve().parent
LIMIT_MB = 1.0  # per 100 rounds
SETTLED = 0.2  # share of the rounds after which nothing new is to be kept
_LOOK_S = 0.25
JOB = {
    "job_name": "soak", "time_stamp": "run", "method": "fedtrans", "fedtrans.gamma": 1,
    "fedtrans.delta": 2, "fedtrans.beta": 1e9, "data_set": "femnist", "model": "nasbench201_base",
    "num_participants": 8, "local_steps": 1, "batch_size": 5, "cohort_size": 2, "unit_size": 2, "eval_interval": 10,
    "filter_less": 0, "ps_port": 0, "use_cuda": False,
}  # fmt: skip

Samples = dict[str, list[tuple[int, float, float]]]  # process -> (round, USS MB, RSS MB)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Growth per 100 rounds of the line through (round, value) with least squares."""
    rounds, values = np.array(points, dtype=np.float64).T
    return float(np.polyfit(rounds, values, 1)[0] * 100)


def watch(driver: "subprocess.Popen[str]", job_json: Path, rounds: int) -> Samples:
    """Memory of the driver and of each process of its job, once per finished round, until the job ends."""
    seen: Samples = {}
    last = 0
    while driver.poll() is None:
        time.sleep(_LOOK_S)
        number = _round(job_json)
        if last < number < rounds:
            last = number
            with suppress(psutil.Error):
                command = psutil.Process(driver.pid)
                for process in [command, *command.children()]:
                    with suppress(psutil.Error):
                        memory = process.memory_full_info()
                        name = "driver" if process == command else role(process.cmdline())
                        seen.setdefault(name, []).append((number, memory.uss / 1e6, memory.rss / 1e6))
    return seen


def _round(job_json: Path) -> int:
    with suppress(OSError, ValueError, TypeError):
        return int(json.loads(job_json.read_text(encoding="utf-8"))["round"]["round"])
    return 0


def page(samples: Samples, rounds: int, wall_s: float) -> str:
    """The page soak.md."""
    text = f"""# Soak: memory over {rounds} rounds

`python -m evals.reliability.soak --work DIR --rounds {rounds}`, {datetime.date.today().isoformat()},
{os.cpu_count()} cores of {model_name()}: FedTrans, 8 of 12 generated clients a round, 2 executors, a checkpoint after
each round, an evaluation every tenth, {wall_s:.0f} s. MB that are the process's own (USS); the slope is fitted from
round {int(rounds * SETTLED)} on.

| process | round {int(rounds * SETTLED)} | the end | slope, MB per 100 rounds | RSS at the end |
|---|---:|---:|---:|---:|
"""
    for name, points in sorted(samples.items()):
        settled = [point for point in points if point[0] >= rounds * SETTLED]
        grows = slope([(number, uss) for number, uss, _ in settled])
        text += f"| {name} | {settled[0][1]:.1f} | {settled[-1][1]:.1f} | {grows:+.2f} | {settled[-1][2]:.1f} |\n"
    return text


def main() -> None:
    """Run the job, watch it, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for data, job and samples")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for fedscale driver start")
    asked = parser.parse_args()
    work = asked.work.absolute()
    data = prepare(work / "data", clients=12, train=20) / "femnist"
    keys: dict[str, Any] = {**JOB, "rounds": asked.rounds, "log_path": str(work), "data_dir": str(data)}
    conf = {"worker_ips": ["localhost:[2]"], "job_conf": [{key: value} for key, value in keys.items()]}
    (work / "soak.yml").write_text(yaml.safe_dump(conf), encoding="utf-8")
    command = [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(work / "soak.yml")]
    began = time.monotonic()
    with (work / "soak.log").open("w", encoding="utf-8") as log:
        driver = subprocess.Popen(
            [*command, *(f"--set={one}" for one in asked.set)],
            env={**os.environ, "FEDSCALE_EXT_STATE": str(work / "state")}, cwd=HERE.parents[1],
            stdout=log, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        samples = watch(driver, work / "state" / "jobs" / "soak" / "job.json", asked.rounds)
    if driver.returncode:
        raise SystemExit(f"the job failed; see {work / 'soak.log'}")
    (work / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    text = page(samples, asked.rounds, time.monotonic() - began)
    (HERE / "soak.md").write_text(text, encoding="utf-8")
    print(text)
    settled = [[p for p in points if p[0] >= asked.rounds * SETTLED] for points in samples.values()]
    raise SystemExit(any(slope([(number, uss) for number, uss, _ in points]) > LIMIT_MB for points in settled))


if __name__ == "__main__":
    main()
