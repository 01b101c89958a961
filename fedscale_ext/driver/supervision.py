"""What ``driver start --supervise`` does about processes that end: when one is started again, and how."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_LIMIT = 10  # restarts of one process without a finished round between them: there is no point in more
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0)  # before the first, second, … restart, and before all further ones


class Restarts:
    """The processes that are to be started again, each at its time.

    A process is restarted at once, then after growing pauses, and at most ten times until a round is finished;
    from then on it counts anew.
    """

    def __init__(self) -> None:
        self._since_round: Counter[str] = Counter()
        self._due: dict[str, float] = {}

    def plan(self, name: str) -> bool:
        """Plan the restart of a process that has ended; False where it was restarted too often."""
        count = self._since_round[name]
        if count >= _LIMIT:
            return False
        self._since_round[name] += 1
        self._due[name] = time.monotonic() + _PAUSES_S[min(count, len(_PAUSES_S) - 1)]
        return True

    def round_finished(self) -> None:
        """The job gets on: nothing that happened before counts any more."""
        self._since_round.clear()

    def take(self) -> list[str]:
        """The processes whose time has come; whoever asks starts them."""
        now = time.monotonic()
        ready = [name for name, due in self._due.items() if due <= now]
        for name in ready:
            del self._due[name]
        return ready

    def planned(self) -> list[str]:
        """Names of the processes that wait for their time."""
        return list(self._due)

    def next(self) -> float | None:
        """When the next of them is to start, in monotonic seconds."""
        return min(self._due.values(), default=None)

    def cancel(self) -> None:
        """Start nothing any more."""
        self._due.clear()


def has_checkpoint(log_dir: Path) -> bool:
    """Whether there is something to resume from."""
    return any((log_dir / "checkpoints").glob("checkpoint-*.safetensors"))


def has_results(log_dir: Path, since: float) -> bool:
    """Whether a run that began at ``since`` (seconds since 1970) has written its summary, after which only pictures
    are missing; that of an earlier run, which is resumed, is older."""
    summary = log_dir / "summary.json"
    return summary.is_file() and summary.stat().st_mtime >= since


def resuming(argv: Sequence[str], log_dir: Path) -> list[str]:
    """The aggregator's command line for going on after its end: from its last checkpoint, or anew where none is."""
    words = [word for word in argv if not word.startswith(("--resume=", "--resume_from="))]
    return [*words, "--resume=True"] if has_checkpoint(log_dir) else words
