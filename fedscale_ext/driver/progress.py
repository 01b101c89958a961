"""What a person sees of a job: a live display in a terminal, plain lines elsewhere, a table at the end."""

import shlex
import textwrap
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedscale_ext.driver.screen import Screen
from fedscale_ext.driver.tables import print_figures, print_table

_EVERY = 10  # rounds between two plain lines where nothing is tested


def span(seconds: float) -> str:
    """A duration in at most two units: ``12.3 s``, ``3 min 05 s``, ``1 h 02 min``, ``2 d 03 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part:02d} {smaller}"
    return f"{whole} s"


def counted(number: Any, thing: str) -> str:
    """``1 model``, ``2 models``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def folded(facts: Sequence[str], width: int) -> str:
    """Facts with commas between, none of which is broken at the end of a line; further lines are indented."""
    unbroken = ", ".join(fact.replace(" ", "\N{NO-BREAK SPACE}") for fact in facts)
    return textwrap.fill(unbroken, width, subsequent_indent="  ").replace("\N{NO-BREAK SPACE}", " ")


class Display(Screen):
    """Shows a job's events."""

    def __init__(self, out: Console, err: Console):
        super().__init__(out, err, per_second=4)
        self._status = "starting"
        self._accuracy: float | None = None
        self._round: dict[str, Any] = {}
        self._doing = ""  # within the round that is under way
        self._ends: list[tuple[int, float]] = []  # of the round before the first one seen, and of that one: when

    def event(self, event: dict[str, Any]) -> None:
        """Show one event of the aggregator; kinds that are not known are passed over."""
        show = {"ready": self._ready, "waiting": self._waiting, "round": self._show_round,
                "transform": self._transform, "progress": self._progress}.get(event["event"])  # fmt: skip
        if show:
            show(event)
        elif event["event"] == "notice":
            self.notice(str(event.get("message")))
        self.refresh()

    def _ready(self, event: dict[str, Any]) -> None:
        self._status = "training"
        self.line(f"data        {event.get('data')}, {counted(event.get('clients'), 'client')}")
        self.line(f"population  {event.get('population')}")
        size = f"{counted(event.get('rounds'), 'round')}, {counted(event.get('executors'), 'executor')}"
        self.line(f"model       {event.get('model')}, {size}")
        self.line(f"results     {event.get('log_dir')}")
        self.line(f"watch       {_tensorboard(event.get('log_dir'))}")

    def _waiting(self, event: dict[str, Any]) -> None:
        self._status = f"waiting for {event.get('for')}"
        if not self._live:
            self.line(self._status)

    def _transform(self, event: dict[str, Any]) -> None:
        self.line(f"round {event.get('round')}: {event.get('child')} from {event.get('parent')}, {event.get('what')}")

    def _progress(self, event: dict[str, Any]) -> None:
        self._doing = str(event.get("what"))
        if not self._live and not event.get("passing"):  # of each round: lines that stay would be too many
            self.line(f"round {event.get('round')}: {self._doing}")

    def _show_round(self, event: dict[str, Any]) -> None:
        now = time.monotonic()
        number, rounds = int(event["round"]), int(event["rounds"])
        if not self._ends:
            self._ends = [(number - 1, now - float(event.get("wall_s") or 0.0)), (number, now)]
        tested = event.get("accuracy") is not None
        self._accuracy = event["accuracy"] if tested else self._accuracy
        begins = event.get("phase", "") != self._round.get("phase", "")
        self._round, self._doing = event, ""
        if tested or begins or (not self._live and (number % _EVERY == 0 or number == rounds)):
            facts = [f"round {number}/{rounds}", *self._facts(tested), *self._eta()]
            self.line(folded(facts, self.out.width) if self._live else ", ".join(facts))

    def _facts(self, with_accuracy: bool) -> list[str]:
        event = self._round
        facts = [event["phase"]] if event.get("phase") else []
        facts += [counted(event.get("participants"), "client"), counted(event.get("models"), "model")]
        if event.get("loss") is not None:
            facts.append(f"loss {event['loss']:.3f}")
        if with_accuracy and self._accuracy is not None:
            facts.append(f"accuracy {100 * self._accuracy:.1f} %")
        if event.get("epsilon") is not None:
            facts.append(f"epsilon {event['epsilon']:.3g}")
        if event.get("virtual_clock_s") is not None:
            facts.append(f"virtual clock {span(event['virtual_clock_s'])}")
        return facts

    def _eta(self) -> list[str]:
        """Time to the end, in words, at the mean pace after the first round seen.

        In the first round everything starts up: its pace is a bound, and is called so.
        """
        number, rounds = self._round["round"], self._round["rounds"]
        if not self._ends or number == rounds:
            return []
        first = number == self._ends[1][0]
        before, since = self._ends[not first]
        left_s = (time.monotonic() - since) / (number - before) * (rounds - number)
        return [f"ETA {'at most ' if first else ''}{span(left_s)}"]

    def picture(self) -> Group:
        """Draw the progress of the job."""
        doing = [Text(self._doing)] if self._doing else []
        if not self._round:
            return Group(Text(f"{self._status} ..."), *doing)
        number, rounds = self._round["round"], self._round["rounds"]
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=rounds, completed=number, width=40)
        head.add_row(f"round {number}/{rounds}", bar, *self._eta())
        return Group(head, Text(", ".join(self._facts(True))), *doing)

    def notice(self, message: str) -> None:
        """Something to know that does not end the job."""
        self.aside(f"[yellow]note:[/] {escape(message)}")

    def error(self, sentence: str) -> None:
        """Print why the job ended early, in one sentence."""
        self.err.print(f"[red]fedscale:[/] {escape(sentence)}", highlight=False, soft_wrap=True)

    def log_line(self, line: str) -> None:
        """A line of a process's log, as it is."""
        self.err.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)

    def summary(self, event: dict[str, Any], log_dir: str, output_log: str) -> None:
        """The results as a table, and where to find everything."""
        rows = [[str(name), str(value)] for name, value in event.get("table", [])]
        self.out.print()
        print_table(self.out, ["result", ""], rows)
        for name, (titles, cells) in event.get("tables", {}).items():
            self.out.print()
            print_figures(self.out, str(name), titles, cells)
        self.out.print()
        files = {str(name): str(path) for name, path in event.get("files", {}).items()}
        paths = {"log_dir": log_dir, **files, "output": output_log}
        width = max(map(len, [*paths, "tensorboard"])) + 2
        for name, path in paths.items():
            if name != "tensorboard":
                self.line(f"{name:<{width}}{path}")
        self.line(f"{'tensorboard':<{width}}{_tensorboard(files.get('tensorboard', log_dir))}")


def _tensorboard(log_dir: Any) -> str:
    """The command that shows a job's figures."""
    return f"tensorboard --logdir {shlex.quote(str(log_dir))}"
