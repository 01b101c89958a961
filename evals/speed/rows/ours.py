"""Our whole job by `fedscale driver start`: real processes, gRPC, virtual clock, accounting, metrics.

The first and the last round are left out: they also test the model on every client.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml

from evals.speed.task import BATCH, CLIENTS, PROCESSES, RATE, STEPS, Spans, Task, task

JOB = "speed"
_LOOK_S = 0.02


def configuration(asked: Task) -> dict[str, Any]:
    """The job as FedScale's YAML says it."""
    keys = {
        "job_name": JOB, "log_path": str(asked.out), "time_stamp": "run", "ps_port": 0, "use_cuda": False,
        "method": "fedavg", "model": asked.model, "data_set": "femnist", "data_dir": str(asked.data / "femnist"),
        "device_conf_file": "resampled", "overcommitment": 1.0, "filter_less": 0, "num_participants": CLIENTS,
        "rounds": asked.rounds + 2, "eval_interval": asked.rounds + 1000, "local_steps": STEPS,
        "batch_size": BATCH, "learning_rate": RATE, "decay_factor": 1.0,
        "client_momentum": 0.0, "client_weight_decay": 0.0,
    }  # fmt: skip
    return {
        "ps_ip": "127.0.0.1",
        "worker_ips": [f"localhost:[{PROCESSES}]"],
        "job_conf": [{key: value} for key, value in keys.items()],
    }


class Watch(threading.Thread):
    """Notes when each line of a file came to be."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self.seen: list[float] = []
        self.ended = threading.Event()

    def run(self) -> None:
        size = 0
        while not self.ended.wait(_LOOK_S):
            now = self.path.stat().st_size if self.path.exists() else 0
            if now != size:
                lines = self.path.read_bytes().count(b"\n")
                self.seen += [time.time()] * (lines - len(self.seen))
                size = now


def run(out: Path, job: dict[str, Any]) -> tuple[Spans, list[dict[str, Any]], dict[str, Any]]:
    """Run a job of the name JOB with its logs below ``out``.

    Args:
        out: Folder that the job's ``log_path`` names.
        job: The configuration.

    Returns:
        The rounds that lie between the first and the last, as spans from one line of metrics.jsonl to the next:
        ``wall_s`` and what lies between rounds. Then all lines, and what `rounds.json` says of the whole job.

    """
    conf = out / "conf.yml"
    conf.write_text(yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    metrics = out / "logs" / JOB / "run" / "metrics.jsonl"
    watch = Watch(metrics)
    watch.start()
    began = time.time()
    command = [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(conf)]
    code = subprocess.run(command, env={**os.environ, "FEDSCALE_EXT_STATE": str(out / "state")}).returncode
    total = time.time() - began
    time.sleep(3 * _LOOK_S)
    watch.ended.set()
    watch.join()
    if code != 0:
        raise SystemExit(code)  # the driver has said why
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    spans = Spans(list(zip(watch.seen[:-2], watch.seen[1:-1], strict=True)))
    seconds = [record["wall_s"] for record in records[1:-1]]
    between = sum(end - begin for begin, end in spans.rounds) - sum(seconds)
    whole = {
        "seconds": seconds,
        "first_round_s": watch.seen[0] - records[0]["wall_s"] - began,
        "total_s": total,
        "between_rounds_s": between / max(1, len(seconds)),
    }
    return spans, records, whole


def main() -> None:
    asked = task()
    spans, _, whole = run(asked.out, configuration(asked))
    spans.write(asked.out, warm_up=0, **whole)


if __name__ == "__main__":
    main()
