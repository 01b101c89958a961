"""What an NVIDIA GPU makes of this package: whether its results are right, then how fast it is.

examples:
  python -m evals.speed.gpu                          everything, nine minutes at most
  python -m evals.speed.gpu --seconds 300            what is left out is in the page, with the reason
  python -m evals.speed.gpu --device cpu --small     the same code, tiny, without a GPU

Parts, in this order: correctness, seconds per round, server steps, FedTrans at the paper's size. Each measurement is
written to WORK/gpu.jsonl at once. The page is evals/speed/gpu.md; of other devices than a GPU it is WORK/gpu.md.
Exit code 1: a check of correctness or a measurement failed.
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch

from evals.speed.command import exit_code
from evals.speed.gpu import correctness, fedtrans, rounds, server_steps
from evals.speed.gpu.measurements import Measurements, Setting
from evals.speed.gpu.page import correct, of, page
from evals.speed.machine import model_name
from fedscale_ext.core.errors import UserError

HERE = Path(__file__).resolve().parent


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see python -m evals.speed.gpu --help")


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
    given = parser.parse_args(argv)
    if given.seconds <= 0:
        raise UserError(f"--seconds is {given.seconds:g}: give more than 0")
    given.device = _device(given.device)
    if given.device.type == "cpu" and not given.small:
        raise UserError("--device cpu is for tests of this command: add --small")
    return given


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


def machine(given: argparse.Namespace) -> dict[str, object]:
    """What is measured where, for the page."""
    on_gpu = given.device.type == "cuda"
    small = " --small" if given.small else ""
    return {
        "command": f"python -m evals.speed.gpu --device {given.device} --seconds {given.seconds:g}{small}",
        "device": torch.cuda.get_device_name(given.device) if on_gpu else "no GPU",
        "processor": model_name(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "date": time.strftime("%Y-%m-%d"),
        "seconds": given.seconds,
    }


def measure(given: argparse.Namespace) -> bool:
    """Make all measurements, and the page after each part; returns whether nothing failed."""
    work = given.work.resolve()
    found = Measurements(work / "gpu.jsonl", Setting(given.device, given.small), given.seconds)
    found.note("machine", **machine(given))
    if given.device.type == "cuda":
        torch.cuda.set_device(given.device)
        torch.backends.cudnn.benchmark = True  # as executors do
    path = HERE.parent / "gpu.md" if given.device.type == "cuda" and not given.small else work / "gpu.md"
    for part in (correctness.run, rounds.run, server_steps.run, partial(fedtrans.run, work=work)):
        part(found)
        path.write_text(page(found.lines), encoding="utf-8")
    print(page(found.lines))
    return not found.failed and all(map(correct, of(found.lines, correctness.PART)))


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    held: list[bool] = []
    stopped = "stopped; what was measured is in the results"
    return exit_code(lambda: held.append(measure(arguments(argv))), stopped) or int(held != [True])


if __name__ == "__main__":
    sys.exit(main())
