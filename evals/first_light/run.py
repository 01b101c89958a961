"""FedAvg and FedTrans on real data through `fedscale driver start`, and the table of what came out.

    python evals/first_light/run.py chars74k DATA_DIR --methods fedavg fedtrans --seeds 1 2
    python evals/first_light/run.py mnist DATA_DIR --methods fedtrans --seeds 1

A run that has its summary is not run again, so an interrupted evaluation goes on where it was. Results are
added to evals/first_light/results.json and results.md.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COLUMNS = ("data", "method", "seed", "rounds", "accuracy %", "IQR %", "worst %", "models", "TMACs fwd+bwd", "wall s")


def run(configuration: str, data_dir: str, method: str, seed: int, logs: Path) -> dict[str, Any]:
    """Summary of one job, trained now or before."""
    name = f"first_light_{configuration}_{method}"
    folder = logs / "logs" / name / f"seed{seed}"
    summary = folder / "summary.json"
    if not summary.is_file():
        keys = {"data_dir": data_dir, "method": method, "seed": seed, "job_name": name, "log_path": logs,
                "time_stamp": f"seed{seed}", "record_internals": True}  # fmt: skip
        settings = [f"--set={key}={value}" for key, value in keys.items()]
        conf = str(HERE / f"{configuration}.yml")
        subprocess.run([sys.executable, "-m", "fedscale_ext.cli", "driver", "start", conf, *settings], check=True)
    return json.loads(summary.read_text(encoding="utf-8"))


def row(summary: dict[str, Any]) -> dict[str, Any]:
    """The figures of a job that the table shows."""
    accuracy = summary["accuracy"]
    kind = "generated" if summary["data"]["generated"] else "real"
    return {
        "data": f"{summary['data']['name']} ({kind}, {summary['num_clients']} clients)",
        "method": summary["method"],
        "seed": summary["seed"],
        "rounds": summary["rounds"],
        "accuracy %": round(100 * accuracy["mean"], 2),
        "IQR %": round(100 * accuracy["iqr"], 2),
        "worst %": round(100 * accuracy["worst"], 2),
        "models": len(summary["models"]),
        "TMACs fwd+bwd": round(summary["cost"]["training_macs"] / 1e12, 2),
        "wall s": round(summary["time"]["wall_s"]),
    }


def write(rows: list[dict[str, Any]]) -> None:
    """Merge rows into results.json and write results.md from it."""
    path = HERE / "results.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    merged = {(entry["data"], entry["method"], entry["seed"]): entry for entry in [*old, *rows]}
    every = [merged[key] for key in sorted(merged)]
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(str(entry[column]) for column in COLUMNS) + " |" for entry in every]
    for target, text in ((path, json.dumps(every, indent=1)), (HERE / "results.md", "\n".join(lines))):
        temporary = target.with_suffix(".tmp")
        temporary.write_text(text + "\n", encoding="utf-8")
        os.replace(temporary, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configuration", choices=["chars74k", "mnist"])
    parser.add_argument("data_dir")
    parser.add_argument("--methods", nargs="+", default=["fedavg", "fedtrans"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--logs", type=Path, default=Path("logs"))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for method in arguments.methods:
            summary = run(arguments.configuration, arguments.data_dir, method, seed, arguments.logs.absolute())
            write([row(summary)])


if __name__ == "__main__":
    main()
