"""What ``driver start --supervise`` does about processes that end: when one is started again, and how."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

_LIMIT = 10  # restarts of one process without a finished round between them: there is no point in more
_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 5.0)  # before the first, second, … restart, and before all further ones


class Restarts:
    """Schedule of processes that are to be started again.

    A process is restarted at once, then after growing pauses, at most ten times. The count begins anew after each
    finished round that was never done before: one that is done again after a restart is no progress.
    """

    def __init__(self) -> None:
        self._most_rounds = 0
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

    def round_finished(self, number: int) -> None:
        """Forget earlier restarts if the job makes progress: no round up to this ``number`` was finished before."""
        if number > self._most_rounds:
            self._most_rounds = number
            self._since_round.clear()

    def take(self) -> list[str]:
        """Remove and return the processes that are due; the caller starts them."""
        now = time.monotonic()
        ready = [name for name, due in self._due.items() if due <= now]
        for name in ready:
            del self._due[name]
        return ready

    def planned(self) -> list[str]:
        """Names of the processes that wait for their time."""
        return list(self._due)

    def next(self) -> float | None:
        """Time of the next planned restart, in monotonic seconds; None without one."""
        return min(self._due.values(), default=None)

    def cancel(self) -> None:
        """Start nothing any more."""
        self._due.clear()


def checkpoints(log_dir: Path) -> list[Path]:
    """The checkpoints in the folder of a run."""
    return list((log_dir / "checkpoints").glob("checkpoint-*.safetensors"))


def has_checkpoint(log_dir: Path) -> bool:
    """Tell whether a folder has a checkpoint, of whatever run."""
    return bool(checkpoints(log_dir))


def can_go_on(log_dir: Path, resumed: bool, ready: bool) -> bool:
    """Tell whether a run has a checkpoint to go on from.

    Args:
        log_dir: The run's folder.
        resumed: Whether the run continues an earlier one. Else it may find checkpoints of another run in its folder.
        ready: Whether its aggregator has said that it is ready. Just before, it removes such checkpoints.

    """
    return (resumed or ready) and has_checkpoint(log_dir)


def is_resumed(argv: Sequence[str]) -> bool:
    """Tell whether an aggregator with these arguments continues an earlier run."""
    return any(word == "--resume=True" or word.startswith("--resume_from=") for word in argv)


def has_results(log_dir: Path, since: float) -> bool:
    """Tell whether a run that began at ``since`` (seconds since 1970) has written its summary.

    After that, only pictures are missing. An older summary is that of an earlier run, which is resumed.
    """
    try:  # a resumed run may remove it meanwhile
        return (log_dir / "summary.json").stat().st_mtime >= since
    except OSError:
        return False


def resuming(argv: Sequence[str], log_dir: Path, ready: bool) -> list[str]:
    """The aggregator's command line for going on after its end: from its last checkpoint, or anew where none is.

    A run that goes back to ``resume_from`` removes the later checkpoints just before it says that it is ``ready``.
    Until then, the next process has to go back, too.
    """
    if not ready and any(word.startswith("--resume_from=") for word in argv):
        return list(argv)
    words = [word for word in argv if not word.startswith(("--resume=", "--resume_from="))]
    return [*words, "--resume=True"] if can_go_on(log_dir, is_resumed(argv), ready) else words
