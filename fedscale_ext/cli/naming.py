"""What a word on the command line stands for: a log folder, a job, a sweep, or the jobs of a sweep's arm."""

from collections.abc import Sequence
from pathlib import Path

from fedscale_ext.cli import jobs, sweeps
from fedscale_ext.errors import UserError
from fedscale_ext.metrics.names import HEADER


def folders(words: Sequence[str]) -> list[Path]:
    """Log folders of the jobs that the words name, in their order, each once; UserError for what names none."""
    return list(dict.fromkeys(folder for word in words for folder in _folders(word)))


def _folders(word: str) -> list[Path]:
    path = Path(word)
    if (path / HEADER).is_file():
        return [path]
    # a sweep's arm may be called as a job is: then the job is meant
    names = [] if word in jobs.names() else sweeps.jobs_of(word)
    if not names:
        if path.is_dir():
            raise UserError(f"{path} is no log folder of a job: it holds no {HEADER}{_below(path)}")
        return [jobs.find(word).log_dir]
    started = [job.log_dir for name in names if (job := jobs.read(name)) is not None]
    begun = [folder for folder in started if (folder / HEADER).is_file()]
    if not begun:
        raise UserError(f"no job of the sweep {word} has begun to train yet")
    return begun


def _below(path: Path) -> str:
    """The end of a sentence that names the newest job in a folder of jobs, where there is one."""
    found = [header.parent for pattern in ("*", "*/*") for header in path.glob(f"{pattern}/{HEADER}")]
    if not found:
        return ""
    newest = max(found, key=lambda folder: ((folder / HEADER).stat().st_mtime_ns, str(folder)))
    return f"; it holds {len(found)} job{'s' if len(found) > 1 else ''}, the newest is {newest}"
