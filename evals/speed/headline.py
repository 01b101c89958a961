"""How long FedTrans on FEMNIST at the paper's size takes on this machine, from 60 measured rounds.

    fedscale dataset synthesize femnist --writers 3400 -o data/femnist3400
    python evals/speed/headline.py data/femnist3400

The job is benchmark_configs/fedtrans_femnist.yml (100 participants, 20 steps, batch 10, 2,000 rounds, each
client tested on its own model every 50), but grows as fast as it can instead of when its loss has levelled
out, so that a few rounds of every stage of growth are measured. A stage is a number of models. The whole job
is put together from its stages at the fastest pace that the paper's values allow: a stage lasts gamma + delta
rounds at least, and growth ends where no client could train a larger model. That is an upper bound: a job
that grows later trains small models for longer.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CONF = HERE.parents[1] / "benchmark_configs" / "fedtrans_femnist.yml"
ROUNDS, EVALUATE, STAGE = 2000, 50, 40  # STAGE: gamma 10 + delta 30 rounds until a model's convergence is known
CLI = [sys.executable, "-m", "fedscale_ext.cli"]
HURRY = {"fedtrans.gamma": 1, "fedtrans.delta": 2, "fedtrans.beta": 1e9}


def log_folder(work: Path) -> Path:
    """Log folder of the measured job that writes into ``work``."""
    return work / "logs" / "headline" / "run"


def command(data: Path, work: Path, rounds: int, settings: list[str]) -> list[str]:
    """The command of the measured job."""
    keys = {"data_dir": data, "log_path": work, "job_name": "headline", "time_stamp": "run", "rounds": rounds,
            "eval_interval": 20, "ps_port": 0, **HURRY}  # fmt: skip
    settings = [f"--set={key}={value}" for key, value in keys.items()] + [f"--set={each}" for each in settings]
    return [*CLI, "driver", "start", str(CONF), *settings]


def measure(data: Path, work: Path, rounds: int, settings: list[str]) -> Path:
    """Log folder of the measured job, run now or before."""
    folder = log_folder(work)
    if not (folder / "summary.json").is_file():
        subprocess.run(command(data, work, rounds, settings), check=True)
    return folder


def read(folder: Path) -> dict[int, dict[str, float]]:
    """The stages of the job that a log folder is of."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return stages([json.loads(line) for line in lines])


def stages(records: list[dict[str, Any]]) -> dict[int, dict[str, float]]:
    """Per number of models that a round trained: rounds, median and mean seconds without evaluation, training GMACs,
    and the seconds of the slowest evaluation where one was due: in all, and of them those (summed over executors) in
    which BatchNorm's statistics were measured."""
    found: dict[int, dict[str, float]] = {}
    before = 1
    groups: dict[int, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(before, []).append(record)
        before = record["models"]
    for models, rounds in groups.items():
        spent = [record["wall_s"] - record["seconds"].get("evaluate", 0.0) for record in rounds]
        tests = [
            (record["seconds"]["evaluate"], record["executor_seconds"].get("statistics", 0.0))
            for record in rounds
            if "evaluate" in record["seconds"]
        ]
        test_s, statistics_s = max(tests, default=(float("nan"), float("nan")))
        found[models] = {
            "rounds": len(rounds),
            # the first round of a stage also measures how its new model trains
            "seconds": statistics.median(spent[1:] or spent),
            "mean_s": statistics.mean(spent[1:] or spent),
            "GMACs": statistics.median(record["training_macs"] / 1e9 for record in rounds),
            "test_s": test_s,
            "statistics_s": statistics_s,
        }
    return found


def whole(found: dict[int, dict[str, float]], of: str = "seconds") -> float:
    """Seconds of the paper's job: every stage for its shortest time, the last one to the end.

    A round takes its stage's ``of`` seconds, the median ("seconds") or the mean ("mean_s").
    """
    order = sorted(found)
    lengths = [STAGE] * (len(order) - 1)
    lengths.append(ROUNDS - sum(lengths))
    training = sum(length * found[models][of] for models, length in zip(order, lengths, strict=True))
    slowest = max(stage["test_s"] for stage in found.values() if stage["test_s"] == stage["test_s"])
    return training + (1 + ROUNDS // EVALUATE) * slowest


def hours(found: dict[int, dict[str, float]]) -> str:
    """Say how long the paper's job takes, with growth and without."""
    return (
        f"2,000 rounds with {1 + ROUNDS // EVALUATE} evaluations, growing at the fastest pace that the paper's values "
        f"allow: {whole(found) / 3600:.2f} hours. Without growth: {whole({1: found[1]}) / 3600:.2f} hours."
    )


def main() -> None:
    """Measure, then print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder of 3,400 generated writers")
    parser.add_argument("--work", type=Path, default=HERE / "work", help="where the job writes")
    parser.add_argument("--rounds", type=int, default=60, help="measured rounds")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of `driver start`")
    parser.add_argument("--page", default="headline.md", help="file beside this one that the table is written to")
    asked = parser.parse_args()
    folder = measure(asked.data, asked.work, asked.rounds, asked.set)
    found = read(folder)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    kind = "generated" if summary["data"]["generated"] else "real"
    lines = [
        f"`{' '.join(['python evals/speed/headline.py DATA', *(f'--set {each}' for each in asked.set)])}`: "
        f"{summary['num_clients']} clients ({kind} data), {asked.rounds} measured rounds, "
        f"{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[1]:.1f} over the last five minutes.",
        "",
        "| models | measured rounds | s per round | training GMACs per round | s per evaluation of all clients |",
        "|---|---|---|---|---|",
        *(
            f"| {models} | {stage['rounds']:.0f} | {stage['seconds']:.2f} | {stage['GMACs']:.0f} "
            f"| {'' if stage['test_s'] != stage['test_s'] else format(stage['test_s'], '.1f')} |"
            for models, stage in sorted(found.items())
        ),
        "",
        hours(found),
    ]
    print("\n".join(lines))
    (HERE / asked.page).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
