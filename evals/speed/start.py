"""How long a job takes to start and to end: python evals/speed/start.py [--runs 5] [--cores 2]

A job of ten rounds of a trivial model (cnn_small, ten participants, five steps of ten samples, generated
data that is already decoded) is run by the command, with as many executors as cores. Measured from the
command's start: the moment at which the driver hears that the first round starts, and the command's end.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "fedscale_ext.cli"]
ASKED_FOR = {"first round starts, s": 8.0, "whole job, s": 15.0, "fedscale --help, s": 1.0}
JOB = """
job_conf:
  - job_name: start
  - log_path: {folder}
  - method: fedavg
  - data_set: femnist
  - data_dir: {folder}/data
  - model: cnn_small
  - use_cuda: False
  - ps_port: 0
  - overcommitment: 1.0
  - filter_less: 0
  - rounds: 10
  - num_participants: 10
  - local_steps: 5
  - batch_size: 10
"""


def run_job(conf: Path, env: dict[str, str]) -> dict[str, float]:
    """Seconds to the first round's start and to the end of the command, and what all its processes computed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with subprocess.Popen([*COMMAND, "driver", "start", str(conf)], env=env, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        started = [time.perf_counter() for line in job.stdout if line.startswith("results ")]
    ended = time.perf_counter()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if job.returncode != 0 or len(started) != 1:
        raise SystemExit(f"the job ended with exit code {job.returncode}")
    computed = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"first round starts, s": started[0] - began, "whole job, s": ended - began, "CPU of the job, s": computed}


def run_help(env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run([*COMMAND, "--help"], env=env, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "FEDSCALE_EXT_STATE": f"{folder}/state", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        make = [
            "dataset",
            "synthesize",
            "femnist",
            "--writers",
            "12",
            "--samples-per-class",
            "1",
            "-o",
            f"{folder}/data",
        ]
        subprocess.run([*COMMAND, *make], env=env, stdout=subprocess.DEVNULL, check=True)
        conf = Path(folder, "start.yml")
        conf.write_text(JOB.format(folder=folder), encoding="utf-8")
        run_job(conf, env)  # decodes the data, and lets Python compile what it imports
        runs = [{**run_job(conf, env), "fedscale --help, s": run_help(env)} for _ in range(args.runs)]
    load = os.getloadavg()[0]
    print(f"{args.runs} runs on {len(os.sched_getaffinity(0))} cores, load average {load:.1f} at the end\n")
    print("| | asked for | median | best | worst |\n|---|---|---|---|---|")
    for name in runs[0]:
        values = [run[name] for run in runs]
        asked = f"under {ASKED_FOR[name]:g}" if name in ASKED_FOR else ""
        print(f"| {name} | {asked} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")


if __name__ == "__main__":
    main()
