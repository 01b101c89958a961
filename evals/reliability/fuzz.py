"""A million hostile inputs to every reader of foreign bytes and to the running aggregator.

    nice -n 19 python evals/reliability/fuzz.py                # goes on where it was stopped; --fresh starts anew
    python evals/reliability/fuzz.py --inputs 20000 --print

Inputs are changes of recorded messages of a real job (bytes, or values of a header whose lengths then add up again)
and of small files. On one machine an input depends on its number alone, so a finding can be repeated: --repeat
"result 1234". A batch that takes five minutes ends the process, and says where it hangs. The state is written after
each thousand; the table goes to fuzz.md beside this file.
"""

import argparse
import faulthandler
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import psutil
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evals.reliability.corpus import record  # noqa: E402
from evals.reliability.decoders import attempt, readers  # noqa: E402
from evals.reliability.server import served  # noqa: E402
from fedscale_ext.util.atomic_files import write_atomic  # noqa: E402

PAGE = Path(__file__).with_suffix(".md")
SERVER = "running aggregator, over gRPC"
_SHARE = {"result": 2.0, "header and sections": 2.0}  # of the inputs; 1.0 otherwise
_BATCH = 1000
_HANG_S = 300.0  # longest batch: then the process says where it hangs, and ends
_WARM = 0.1  # of the inputs: what the process grows by until then are its caches
_MOST_GROWTH_MB = 64.0


def planned(names: list[str], inputs: int) -> dict[str, int]:
    """How many inputs each reader gets, at least ``inputs`` in all."""
    shares = {name: _SHARE.get(name, 1.0) for name in names}
    return {name: int(inputs * share / sum(shares.values())) + 1 for name, share in shares.items()}


def resident_mb() -> float:
    """Memory of this process, which the service runs in too."""
    return psutil.Process().memory_info().rss / 1e6


class Run:
    """The inputs done so far, by reader; kept in a file from which another run continues."""

    def __init__(self, path: Path, fresh: bool) -> None:
        self._path = path
        self.state: dict[str, Any] = {"readers": {}, "memory_mb": [], "findings": [], "seconds": 0.0}
        if path.exists() and not fresh:
            self.state = json.loads(path.read_text(encoding="utf-8"))

    def batch(self, name: str, one: Callable[[Random], bool], most: int) -> None:
        """Up to a thousand more inputs for a reader."""
        own = self.state["readers"].setdefault(name, {"done": 0, "taken": 0, "longest_s": 0.0})
        began = time.monotonic()
        faulthandler.dump_traceback_later(_HANG_S, exit=True)
        for number in range(own["done"], min(own["done"] + _BATCH, most)):
            start = time.process_time()  # a machine that is busy, or stops this process, plays no part
            try:
                own["taken"] += one(Random(f"{name} {number}"))
            except Exception as error:
                self._found(f"{name} {number}", error)
            own["longest_s"] = max(own["longest_s"], time.process_time() - start)
            own["done"] += 1
        faulthandler.cancel_dump_traceback_later()
        self.state["seconds"] += time.monotonic() - began
        self.state["memory_mb"].append([self.done(), round(resident_mb(), 1), os.getpid()])
        write_atomic(self._path, json.dumps(self.state))

    def done(self) -> int:
        """Inputs so far."""
        return sum(own["done"] for own in self.state["readers"].values())

    def growth_mb(self) -> float:
        """Most that memory grew by after the warm-up of a process; a run that was continued counts each apart."""
        by_process: dict[int, list[float]] = {}
        for _, memory, process in self.state["memory_mb"]:
            by_process.setdefault(process, []).append(memory)
        return max(max(own) - max(own[: max(1, int(_WARM * len(own)))]) for own in by_process.values())

    def _found(self, what: str, error: Exception) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.state["findings"].append(
            {"input": what, "error": f"{type(error).__name__}: {error}"[:300], "at": f"{where.name}:{where.lineno}"}
        )
        print(json.dumps(self.state["findings"][-1]), file=sys.stderr, flush=True)


def fuzz(run: Run, inputs: int, folder: Path, say: Callable[[str], None] = lambda line: None) -> None:
    """All inputs, a batch for each reader in turn."""
    corpus = record(folder)
    with served(corpus, folder) as service:
        every: dict[str, Callable[[Random], bool]] = {
            name: lambda random, reader=reader: attempt(reader, random)  # type: ignore[misc]
            for name, reader in readers(corpus, folder).items()
        }
        every[SERVER] = service.attempt
        plan = planned(list(every), inputs)
        while any(run.state["readers"].get(name, {"done": 0})["done"] < most for name, most in plan.items()):
            for name, most in plan.items():
                run.batch(name, every[name], most)
            service.check()
            say(f"{run.done():,} inputs, {len(run.state['findings'])} findings, {resident_mb():.0f} MB")


def page(run: Run) -> str:
    """The recorded result."""
    rows = []
    for name, own in run.state["readers"].items():
        done, taken = own["done"], own["taken"]
        rows.append(f"| {name} | {done:,} | {done - taken:,} | {taken:,} | {1e3 * own['longest_s']:.0f} |")
    findings = [f"- `{found['input']}`: {found['error']} ({found['at']})" for found in run.state["findings"]]
    memory = [memory for _, memory, _ in run.state["memory_mb"]]
    return f"""# Hostile inputs

`{" ".join(["python evals/reliability/fuzz.py", *sys.argv[1:]])}`, {date.today()}: {run.done():,} inputs in
{run.state["seconds"]:,.0f} s on a busy machine, Python {sys.version.split()[0]}, torch {torch.__version__}.
**{len(findings)} findings**: crashes, errors that a reader must not raise, forgeries that were let in, refusals that
say too much, calls unanswered after 20 s. "Taken" are inputs that still say something valid; the aggregator's
main thread used what it took. Memory of the process (fuzzer and aggregator) was at most {max(memory):.0f} MB,
and grew by {run.growth_mb():.1f} MB after its first tenth.

| reader | inputs | refused | taken | longest, processor ms |
|---|---:|---:|---:|---:|
{chr(10).join(rows)}
{chr(10).join(findings)}
""".rstrip() + "\n"  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "fedscale_ext_fuzz.json")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run did")
    parser.add_argument("--print", action="store_true", help="print the table instead of writing fuzz.md")
    parser.add_argument("--repeat", metavar="INPUT", help='one input by its name, such as "result 1234"')
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.CRITICAL)
    memory = Path("/dev/shm")  # files of inputs need no disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        if arguments.repeat:
            reader = arguments.repeat.rpartition(" ")[0]
            corpus = record(folder)
            if reader == SERVER:
                with served(corpus, folder) as service:
                    print("taken" if service.attempt(Random(arguments.repeat)) else "refused")
            else:
                print("taken" if attempt(readers(corpus, folder)[reader], Random(arguments.repeat)) else "refused")
            return
        run = Run(arguments.state, arguments.fresh)
        fuzz(run, arguments.inputs, folder, lambda line: print(line, file=sys.stderr, flush=True))
    if arguments.print:
        print(page(run))
    else:
        PAGE.write_text(page(run), encoding="utf-8")
    if run.state["findings"] or run.growth_mb() > _MOST_GROWTH_MB:
        sys.exit(1)


if __name__ == "__main__":
    main()
