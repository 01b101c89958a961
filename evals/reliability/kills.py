"""Random SIGKILLs in one job: its weights, clock and metrics must be those of an undisturbed one.

    python evals/reliability/kills.py                  # 100 kills in 30 rounds; the result goes to kills.md
    python evals/reliability/kills.py --kills 10 --rounds 5 --print

Aggregator and two executors are real processes that talk over gRPC, started again as soon as they are dead; the
aggregator goes on from its last checkpoint. Who is killed when is drawn from --seed, in step with the rounds.
"""

import argparse
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from faults.harness import Job, run_job  # noqa: E402
from job_results import assert_equal  # noqa: E402
from tiny_job import tiny_data, write_job_file  # noqa: E402

from evals.speed.machine import model_name  # noqa: E402

PAGE = Path(__file__).with_suffix(".md")
PAUSE_S = 0.6  # between two kills, on average


class Killer:
    """Kills processes at random moments, ``kills`` in all, spread over ``rounds``."""

    def __init__(self, kills: int, rounds: int, seed: int) -> None:
        self.kills, self.rounds = kills, rounds
        self.done: Counter[str] = Counter()
        self._draw = random.Random(seed)
        self._next = 0.0

    def __call__(self, job: Job) -> None:
        """Kill or let live; called all the time."""
        lines = job.log_dir / "metrics.jsonl"
        rounds = lines.read_bytes().count(b"\n") if lines.exists() else 0
        due = min(self.kills, self.kills * (rounds + 1) / (0.8 * self.rounds))  # done before the last rounds
        now = time.monotonic()
        if self.done.total() >= due or now < self._next:
            return
        self._next = now + self._draw.expovariate(1 / PAUSE_S)
        name = self._draw.choice(sorted(job.argv))
        process = job.processes[name]
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            self.done[name] += 1


def page(arguments: argparse.Namespace, killer: Killer, seconds: list[float], faults: Counter[str]) -> str:
    """The recorded result."""
    rows = "\n".join(f"| {name} | {killer.done[name]} |" for name in sorted(killer.done))
    met = ", ".join(f"{count} {what}" for what, count in sorted(faults.items()))
    return f"""# Random kills

`{" ".join(["python evals/reliability/kills.py", *sys.argv[1:]])}`, {date.today()}: one job of
{arguments.rounds} rounds, 7 generated clients, aggregator and 2 executors; {os.cpu_count()} cores of {model_name()},
Python {platform.python_version()}.

| process | SIGKILLs |
| --- | ---: |
{rows}
| all | {killer.done.total()} |

Final weights, virtual clock and every round's metrics are bitwise equal to the undisturbed job's. The job took
{seconds[1]:.0f} s, the undisturbed one {seconds[0]:.0f} s. The rounds' records count {met or "nothing"}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=120, help="local steps: they decide how long a round lasts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--print", action="store_true", help="print the page instead of writing kills.md")
    arguments = parser.parse_args()
    settings = {
        "model": "cnn_small", "num_participants": 7, "rounds": arguments.rounds, "local_steps": arguments.steps,
        "eval_interval": 2, "lease_s": 10, "register_timeout_s": 20, "unit_tries": 1000,  # units are not to blame here
    }  # fmt: skip
    seconds, ended = [], []
    killer = Killer(arguments.kills, arguments.rounds, arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job_file = write_job_file(tiny_data(folder), folder)
        for title, meddle in (("undisturbed", None), ("killed", killer)):
            begin = time.monotonic()
            ended.append(run_job(job_file, {**settings, "job_name": title}, timeout_s=1800, meddle=meddle))
            seconds.append(time.monotonic() - begin)
    assert_equal(ended[0].compared, ended[1].compared)
    assert killer.done.total() == arguments.kills, f"only {killer.done.total()} kills: raise --steps"
    assert len(killer.done) == 3
    text = page(arguments, killer, seconds, ended[1].faults)
    if arguments.print:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
