"""Moss's server step beside a plain loop over pairs: python -m evals.speed.moss_server_step [--epochs 5] [--threads 2]

Three types (ResNet-18, MobileNetV2, LeNet of 80k parameters; 3x32x32, 10 classes), proxies of the ResNet-18,
100 public samples in batches of 32, bilevel WIRE in both directions, FILE. Ours runs as a job's aggregator runs it:
transfers in threads, one torch thread each. The plain loop (``moss_loop.py``) runs twice: with one torch thread, which
is what an aggregator has, so that results do not depend on the number of cores, and with as many as ours has threads.
Each row is a process of its own: wall and processor time of the step, and the process's peak memory above what it held
before.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from evals.speed import moss_loop
from fedscale_ext import models
from fedscale_ext.core.types import State
from fedscale_ext.methods.moss.knowledge_transfer import Options
from fedscale_ext.methods.moss.proxy_models import ProxyModels, Public, Type

ROOT = Path(__file__).resolve().parents[2]
SHAPE, CLASSES = (3, 32, 32), 10
ROWS = {"ours": "ours", "loop": "loop, one torch thread", "threaded": "loop, as many torch threads"}
TYPES = {"large": "resnet18", "medium": "mobilenetv2", "small": "lenet_80k"}


def setting(
    names: Mapping[str, str], epochs: int, samples: int, **switches: Any
) -> tuple[ProxyModels, dict[str, State], Public]:
    """A server for types of these models, their states, and generated public samples."""
    types = {key: Type(models.named_spec(name, SHAPE, CLASSES)) for key, name in names.items()}
    server = ProxyModels(types, Options(epochs=epochs), 1, **switches)
    states = {key: models.initial_state(own.spec, 2) for key, own in types.items()}
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(samples, *SHAPE, generator=generator)
    return server, states, Public(x, torch.randint(CLASSES, (samples,), generator=generator))


def measure(row: str, args: argparse.Namespace) -> dict[str, float]:
    """One step of ``row``, one of ROWS."""
    torch.set_num_threads(args.threads if row == "threaded" else 1)
    server, states, public = setting(
        TYPES, args.epochs, args.samples, same_arch_transfer=args.same, threads=args.threads
    )
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, computed = time.perf_counter(), time.process_time()
    if row == "ours":
        found = server.step(1, states, dict.fromkeys(states, 100), public).models
    else:
        found = moss_loop.server_step(server, 1, states, dict.fromkeys(states, 100), public)
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - computed,
        "peak_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held) / 1024,
        "norm": sum(float(each.double().norm()) for state in found.values() for each in state.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--same", choices=("copy", "wire"), default="copy")
    parser.add_argument("--row", choices=ROWS, help="measure this one here")
    args = parser.parse_args()
    if args.row:
        print(json.dumps(measure(args.row, args)))
        return
    print("| | wall, s | processor, s | peak memory, MB | norm of the models |\n|---|---|---|---|---|")
    rows = {}
    for row, label in ROWS.items():
        command = [sys.executable, "-m", "evals.speed.moss_server_step", *sys.argv[1:], "--row", row]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        own = rows[row] = json.loads(done.stdout)
        print(f"| {label} | {own['wall_s']:.1f} | {own['cpu_s']:.1f} | {own['peak_mb']:.0f} | {own['norm']:.6f} |",
              flush=True)  # fmt: skip
    for row in ("loop", "threaded"):
        ratios = [rows[row][name] / rows["ours"][name] for name in ("wall_s", "cpu_s", "peak_mb")]
        print(f"| {ROWS[row]} / ours | {ratios[0]:.2f} | {ratios[1]:.2f} | {ratios[2]:.2f} | |")
    print(f"\n{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
