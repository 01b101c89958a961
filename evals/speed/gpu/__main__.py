"""What an NVIDIA GPU makes of this package: whether its results are right, then how fast it is.

examples:
  python -m evals.speed.gpu                          everything, nine minutes at most
  python -m evals.speed.gpu --seconds 300            what is left out is in the page, with the reason
  python -m evals.speed.gpu --device cpu --small     the same code, tiny, without a GPU

Parts, in this order: correctness, seconds per round, ways to convolve, server steps, FedTrans at the paper's size, a
sweep of small jobs, server steps on the CPU. Each measurement is written to WORK/gpu.jsonl at once. The page is
evals/speed/gpu.md; of other devices than a GPU it is WORK/gpu.md.
Exit code 1: a check of correctness or a measurement failed.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import torch

from evals.speed.command import Parser, exit_code
from evals.speed.gpu import convolutions, correctness, fedtrans, rounds, server_steps, sweep
from evals.speed.gpu.measurements import Measurements, Setting
from evals.speed.gpu.page import correct, of, page
from evals.speed.machine import model_name
from fedscale_ext.core.errors import UserError

HERE = Path(__file__).resolve().parent


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line, checked; UserError in one sentence for what is wrong in it."""
    parser = Parser(
        prog="python -m evals.speed.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0", metavar="NAME", help="cuda:0 by default, or cpu")
    parser.add_argument("--seconds", type=float, default=540.0, metavar="S", help="budget of the command (540)")
    parser.add_argument("--small", action="store_true", help="tiny sizes, which test this command and measure nothing")
    parser.add_argument("--work", type=Path, default=HERE.parent / "work" / "gpu", metavar="DIR",
                        help="data, jobs and results")  # fmt: skip
    options = parser.parse_args(argv)
    if options.seconds <= 0:
        raise UserError(f"--seconds is {options.seconds:g}: give more than 0")
    options.device = _device(options.device)
    if options.device.type == "cpu" and not options.small:
        raise UserError("--device cpu is for tests of this command: add --small")
    return options


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device is {name!r}: give cuda:0, another GPU, or cpu") from None
    if device.type not in ("cuda", "cpu"):
        raise UserError(f"--device is {name!r}: give cuda:0, another GPU, or cpu")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError("torch finds no GPU on this machine: install a torch for CUDA on one that has an NVIDIA GPU")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"there is no GPU {device.index}, there are {torch.cuda.device_count()}")
    return device


def machine(options: argparse.Namespace) -> dict[str, object]:
    """What is measured where, for the page."""
    on_gpu = options.device.type == "cuda"
    small = " --small" if options.small else ""
    return {
        "command": f"python -m evals.speed.gpu --device {options.device} --seconds {options.seconds:g}{small}",
        "device": torch.cuda.get_device_name(options.device) if on_gpu else "no GPU",
        "processor": model_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": options.seconds,
    }


def measure(options: argparse.Namespace) -> bool:
    """Make all measurements, and the page after each part; returns whether nothing failed."""
    work = options.work.resolve()
    measurements = Measurements(work / "gpu.jsonl", Setting(options.device, options.small), options.seconds)
    measurements.note("machine", **machine(options))
    if options.device.type == "cuda":
        torch.cuda.set_device(options.device)
    path = HERE.parent / "gpu.md" if options.device.type == "cuda" and not options.small else work / "gpu.md"
    on_cpu = server_steps.run_on_cpu
    headline, jobs = partial(fedtrans.run, work=work), partial(sweep.run, work=work)
    parts = (correctness.run, rounds.run, convolutions.run, server_steps.run, headline, jobs, on_cpu)
    for part in parts:
        part(measurements)
        path.write_text(page(measurements.lines), encoding="utf-8")
    print(page(measurements.lines))
    return not measurements.failed and all(map(correct, of(measurements.lines, correctness.PART)))


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    results: list[bool] = []
    stopped = "stopped; what was measured is in the results"
    return exit_code(lambda: results.append(measure(arguments(argv))), stopped) or int(results != [True])


if __name__ == "__main__":
    sys.exit(main())
