"""What ``driver start --supervise`` does about processes that end: when one is started again, and how."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
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


def has_checkpoint(log_dir: Path, since: float = 0.0) -> bool:
    """Tell whether a run has a checkpoint to resume from, which is not from before ``since`` (seconds since 1970)."""
    return bool(_checkpoints(log_dir, since))


def _checkpoints(log_dir: Path, since: float = 0.0) -> list[Path]:
    files = []
    for file in (log_dir / "checkpoints").glob("checkpoint-*.safetensors"):
        with suppress(FileNotFoundError):  # the aggregator removes old ones
            if file.stat().st_mtime >= since:
                files.append(file)
    return files


def checkpoints_since(argv: Sequence[str], since: float) -> float:
    """Since when checkpoints are those of the run of an aggregator with these arguments, which began at ``since``.

    A run that began anew may find some of an earlier run in its folder, until its aggregator removes them.
    """
    return 0.0 if any(word.startswith(("--resume=", "--resume_from=")) for word in argv) else since


def has_results(log_dir: Path, since: float) -> bool:
    """Tell whether a run that began at ``since`` (seconds since 1970) has written its summary.

    After that, only pictures are missing. An older summary is that of an earlier run, which is resumed.
    """
    try:  # a resumed run may remove it meanwhile
        return (log_dir / "summary.json").stat().st_mtime >= since
    except OSError:
        return False


def resuming(argv: Sequence[str], log_dir: Path, since: float) -> list[str]:
    """The aggregator's command line for going on after its end: from its last checkpoint, or anew where none is.

    A run that goes back to ``resume_from`` removes the later checkpoints just before its first round. As long as one of
    them is from before ``since`` (seconds since 1970), when the run began, the next process has to go back, too.
    A run that began anew does not go on from checkpoints of before.
    """
    back = [int(word.partition("=")[2]) for word in argv if word.startswith("--resume_from=")]
    newer = _checkpoints(log_dir, since)
    for file in _checkpoints(log_dir) if back else ():
        if int(file.stem.partition("-")[2]) > back[0] and file not in newer:
            return list(argv)
    words = [word for word in argv if not word.startswith(("--resume=", "--resume_from="))]
    return [*words, "--resume=True"] if has_checkpoint(log_dir, checkpoints_since(argv, since)) else words
