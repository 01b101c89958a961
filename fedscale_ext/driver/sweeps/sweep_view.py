"""What a person sees of a sweep: a live table in a terminal, a line per event elsewhere, notices and its arms."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedscale_ext.driver.progress import counted, span
from fedscale_ext.driver.screen import Screen
from fedscale_ext.driver.sweeps.sweep_records import Sweep
from fedscale_ext.driver.tables import print_table
from fedscale_ext.report.page.notices import grouped

_LONGEST = 34  # letters of a job's name in the table
_NOTICES = 20  # printed at most; each job's summary has all of its own


@dataclass
class State:
    """A job of the sweep: ``status`` is waiting, running, finished, failed or stopped."""

    status: str = "waiting"
    round: int = 0
    rounds: int = 0
    accuracy: float | None = None
    began: float = 0.0  # monotonic seconds
    took: float | None = None  # seconds of one that finished now
    reason: str = ""
    notices: list[str] = field(default_factory=list)  # of its aggregator


class SweepDisplay(Screen):
    """Shows a sweep's jobs."""

    def __init__(self, out: Console, err: Console, states: Mapping[str, State]):
        super().__init__(out, err, per_second=2)
        self._states = states

    def started(self, name: str, how: str) -> None:
        """A job begins; ``how`` says what is special about that, in words. In a terminal the table shows the others."""
        if how or not self._live:
            self.line(f"{name}: {how or 'starts'} ({self._count()})")

    def ended(self, name: str) -> None:
        """A job has ended, well or not."""
        state = self._states[name]
        if state.status == "finished":
            accuracy = [] if state.accuracy is None else [f"accuracy {100 * state.accuracy:.1f} %"]
            took = [] if state.took is None else [span(state.took)]
            self.line(", ".join([f"{name}: finished", *accuracy, *took, self._count()]))
        else:
            self.aside(f"[red]{escape(name)}: {state.status}[/] {escape(state.reason)}".rstrip())

    def _count(self) -> str:
        ended = sum(state.status in ("finished", "failed", "stopped") for state in self._states.values())
        return f"{ended} of {counted(len(self._states), 'job')} ended"

    def _eta(self) -> str:
        """Time to the end, in words, from what jobs took or how far the running ones are; empty before either."""
        took = [state.took for state in self._states.values() if state.took]
        now = time.monotonic()
        running = [state for state in self._states.values() if state.status == "running"]
        took = took or [(now - s.began) / s.round * s.rounds for s in running if s.round]
        if not took:
            return ""
        left: float = sum(state.status == "waiting" for state in self._states.values())
        left += sum(1 - state.round / max(1, state.rounds) for state in running)
        left_s = statistics.mean(took) * left / max(1, len(running))
        return f", ETA {span(left_s)}"

    def picture(self) -> Group:
        """The jobs that run, and how far they are."""
        table = Table.grid(padding=(0, 1))
        for name, state in self._states.items():
            if state.status == "running":
                short = name if len(name) <= _LONGEST else f"…{name[1 - _LONGEST :]}"
                accuracy = "" if state.accuracy is None else f"{100 * state.accuracy:.1f} %"
                bar = ProgressBar(total=max(1, state.rounds), completed=state.round, width=16)
                table.add_row(Text(short), bar, f"{state.round}/{state.rounds or '?'}", accuracy)
        return Group(Text(f"{self._count()}{self._eta()}"), table)


def arm_rows(sweep: Sweep, states: Mapping[str, State]) -> tuple[list[str], list[list[str]]]:
    """Titles and a row per arm: finished jobs, and mean and deviation of their accuracy over seeds.

    A row counts the jobs that have an accuracy where not all do. Jobs without a state, which a resumed sweep left out,
    do not count.
    """
    rows = []
    for arm in sweep.arms:
        names = [point.name for point in sweep.points if point.arm == arm and point.name in states]
        if not names:
            continue
        done = [states[name] for name in names if states[name].status == "finished"]
        values = [100 * state.accuracy for state in done if state.accuracy is not None]
        of_which = f" ({len(values)} of {len(done)})" if 0 < len(values) < len(done) else ""
        rows.append([arm, f"{len(done)} of {len(names)}", f"{_mean(values)}{of_which}"])
    return ["", "finished", "accuracy %"], rows


def print_arms(out: Console, sweep: Sweep, states: Mapping[str, State]) -> None:
    """The arms as a table, and how to compare them in full."""
    out.print()
    print_table(out, *arm_rows(sweep, states))
    if not any(state.status == "finished" for state in states.values()):
        return
    out.print()
    out.print(f"compare: fedscale report {sweep.name}", markup=False, highlight=False, soft_wrap=True)


def print_notices(err: Console, notices: Mapping[str, Sequence[str]]) -> None:
    """Print the notices of a sweep's jobs, given by the job's name, for whoever watches the sweep."""
    sentences = grouped(notices)
    for sentence, jobs in sentences[:_NOTICES]:
        err.print(f"[yellow]note:[/] {escape(sentence)} ({escape(jobs)})", highlight=False, soft_wrap=True)
    if (more := len(sentences) - _NOTICES) > 0:
        err.print(f"[yellow]note:[/] {more} more notices stand in the jobs' summaries", highlight=False, soft_wrap=True)


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"
