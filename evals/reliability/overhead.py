"""What the guards of a job cost: rounds with and without them, in turn.

    python -m evals.reliability.overhead --work /tmp/overhead

With: a job as it is (signed messages, signs of life, checked results, a checkpoint after each round). Without: the
same job with :mod:`bare` as the processes' entry, and no checkpoints. ~50k-parameter CNN, 100 clients, 20 steps,
batch 10, 2 executors; a round's span is from one line of metrics.jsonl to the next, so that it includes what is
written. Training itself varies by more than the guards cost, from one job to the next; so the part of a round in which
the executors did not train (span - training / executors) is told as well. Writes overhead.md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from evals.speed.data import prepare
from evals.speed.machine import model_name
from evals.speed.rows.ours import Watch, configuration
from evals.speed.task import PROCESSES, Task

HERE = Path(__file__).resolve().parent
KINDS = ("with", "without")


def job(kind: str, folder: Path, data: Path, rounds: int) -> list[tuple[float, float]]:
    """Seconds of the job's rounds but the first and the last, which test: in all, and without training."""
    folder.mkdir(parents=True)
    conf: dict[str, Any] = configuration(Task(model="cnn_small", rounds=rounds, data=data, out=folder))
    if kind == "without":
        conf |= dict.fromkeys(("aggregator_entry", "executor_entry"), str(HERE / "bare.py"))
        conf["job_conf"].append({"checkpoint_interval": 10**6})
    path = folder / "conf.yml"
    path.write_text(yaml.safe_dump(conf, sort_keys=False), encoding="utf-8")
    watch = Watch(folder / "logs" / "speed" / "run" / "metrics.jsonl")
    watch.start()
    command = [sys.executable, "-m", "fedscale_ext.cli", "driver", "start", str(path)]
    subprocess.run(command, env={**os.environ, "FEDSCALE_EXT_STATE": str(folder / "state")}, check=True)
    watch.ended.set()
    watch.join()
    spans = [end - begin for begin, end in zip(watch.seen[:-2], watch.seen[1:-1], strict=True)]
    records = [json.loads(line) for line in watch.path.read_text(encoding="utf-8").splitlines()][1:-1]
    training = [record["executor_seconds"]["training"] / PROCESSES for record in records]
    return [(span, span - trained) for span, trained in zip(spans, training, strict=True)]


def table(spent: dict[str, list[list[tuple[float, float]]]], began: str) -> str:
    """The page: seconds of each kind, the ratio within each repetition, and what the guards cost beside training."""
    whole, beside = ({kind: [[pair[part] for pair in own] for own in spent[kind]] for kind in KINDS} for part in (0, 1))
    ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(whole["with"], whole["without"], strict=True)]
    rows, medians = [], {}
    for kind in KINDS:
        every, rest = ([s for own in part[kind] for s in own] for part in (whole, beside))
        medians[kind] = statistics.median(every), statistics.median(rest)
        low, high = min(every), max(every)
        rows.append(
            f"| {kind} | {medians[kind][0]:.3f} | {low:.3f} | {high:.3f} | {medians[kind][1]:.3f} | {len(every)} |"
        )
    share = (medians["with"][1] - medians["without"][1]) / medians["without"][0]
    return "\n".join(
        [
            "# What the guards cost",
            "",
            f"`python -m evals.reliability.overhead`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores of "
            f"{model_name()}; {began}.",
            "",
            "Seconds per round, ~50k-parameter CNN, 100 clients, 20 steps, batch 10, 2 executors. With: signed",
            "messages, signs of life, checked results, a checkpoint after each round. Without: none of these. Jobs in",
            "turn.",
            "",
            "| guards | median | least | most | beside training, median | rounds |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"With / without: **{statistics.median(ratios):.3f}** (median of {len(ratios)} pairs of jobs, "
            f"{min(ratios):.3f} to {max(ratios):.3f}: training differs more from job to job).",
            f"Beside training the guards cost **{100 * share:.1f} %** of a round.",
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the jobs and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=HERE / "work" / "overhead", help="data and jobs' files")
    parser.add_argument("--rounds", type=int, default=10, help="timed rounds of a job (10)")
    parser.add_argument("--repetitions", type=int, default=5, help="pairs of jobs (5)")
    asked = parser.parse_args(arguments)
    began = f"load average at the start {os.getloadavg()[0]:.2f}"
    data = prepare(asked.work / "data")
    spent: dict[str, list[list[tuple[float, float]]]] = {kind: [] for kind in KINDS}
    run = time.strftime("%H%M%S")
    for repetition in range(asked.repetitions):
        for kind in KINDS if repetition % 2 == 0 else reversed(KINDS):
            seconds = job(kind, asked.work / f"{run}-{repetition}-{kind}", data, asked.rounds)
            spent[kind].append(seconds)
            with (asked.work / "results.jsonl").open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({"run": run, "kind": kind, "seconds": seconds}) + "\n")
    page = table(spent, began)
    (HERE / "overhead.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
