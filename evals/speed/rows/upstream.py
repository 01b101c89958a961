"""Upstream FedScale 1.0 as its wheel is: aggregator and two executors on this machine, rounds from its TensorBoard.

Its clients train with momentum 0.9 and weight decay 5e-4, which its code fixes. `num_loaders` is 0 and each
executor has one thread, its fastest settings. The data are read from PNG files, as it does.
"""

import os
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from evals.speed.task import BATCH, CLIENTS, PROCESSES, RATE, STEPS, Spans, Task, task

JOB = "upstream"
_STARTS_S = 120.0
_LIMIT_S = 7200.0


def flags(asked: Task, port: int) -> list[str]:
    """What FedScale's driver would pass to both files. ``rounds: R`` trains R - 1 rounds there."""
    femnist = asked.data / "femnist"
    values = {
        "job_name": JOB, "log_path": asked.out, "time_stamp": "run", "ps_ip": "127.0.0.1", "ps_port": port,
        "num_executors": PROCESSES, "executor_configs": f"127.0.0.1:[{PROCESSES}]", "use_cuda": False,
        "data_dir": femnist, "data_map_file": femnist / "client_data_mapping" / "train.csv",
        "device_conf_file": asked.out / "none", "data_set": "femnist", "model": asked.model,
        "num_participants": CLIENTS, "overcommitment": 1.0, "filter_less": 0, "gradient_policy": "fed-avg",
        "rounds": asked.rounds + 2, "local_steps": STEPS, "batch_size": BATCH, "learning_rate": RATE,
        "decay_factor": 1.0, "eval_interval": 10**9, "num_loaders": 0,
    }  # fmt: skip
    return [f"--{key}={value}" for key, value in values.items()]


def wait_for(port: int, aggregator: subprocess.Popen) -> None:
    """Until the aggregator listens: an executor that comes too early sleeps 5 s before it tries again."""
    deadline = time.monotonic() + _STARTS_S
    while time.monotonic() < deadline and aggregator.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("upstream FedScale's aggregator did not open its port")


def rounds(folder: Path) -> Spans:
    """Its rounds from the second on: it writes the training loss whenever a round has ended."""
    events = EventAccumulator(str(folder))
    events.Reload()
    ends = [event.wall_time for event in events.Scalars("Train/round_to_loss")]
    return Spans(list(pairwise(ends)))


def main() -> None:
    asked = task()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    python = [sys.executable, "-m", "evals.speed.rows.upstream_rank"]
    shared = flags(asked, port)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen([*python, "aggregator", *shared, "--this_rank=0"], env=environment)]
    try:
        wait_for(port, processes[0])
        for rank in range(1, PROCESSES + 1):
            processes.append(subprocess.Popen([*python, "executor", *shared, f"--this_rank={rank}"], env=environment))
        if (code := processes[0].wait(_LIMIT_S)) != 0:
            raise SystemExit(code)  # its traceback is in the output
        for executor in processes[1:]:
            executor.wait(60)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
    spans = rounds(asked.out / "logs" / JOB / "run" / "aggregator")
    if len(spans.rounds) != asked.rounds:
        raise SystemExit(f"upstream FedScale ended after {len(spans.rounds)} of {asked.rounds} timed rounds")
    spans.write(asked.out, warm_up=0)


if __name__ == "__main__":
    main()
