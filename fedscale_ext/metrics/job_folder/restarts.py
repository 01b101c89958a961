"""restarts.jsonl: which processes of a job were restarted, written by the driver and counted in the summary."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from fedscale_ext.metrics.job_folder.json_lines import GrowingFile

RESTARTS = "restarts.jsonl"


def note_restart(log_dir: Path, process: str, reason: str, after_round: int) -> None:
    """Add one restart; ``reason`` says how the process ended, ``after_round`` is the last round that was finished."""
    log_dir.mkdir(parents=True, exist_ok=True)
    file = GrowingFile(log_dir / RESTARTS)
    file.append(json.dumps({"process": process, "reason": reason, "after_round": after_round}))
    file.close()


def count_restarts(log_dir: Path) -> dict[str, int]:
    """Count how often each process was restarted; a half line that a killed driver left is passed over."""
    path = log_dir / RESTARTS
    if not path.exists():
        return {}
    counts: Counter[str] = Counter()
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
        with suppress(ValueError, KeyError, TypeError):  # TypeError: JSON, but no object
            counts[str(json.loads(text)["process"])] += 1
    return dict(sorted(counts.items()))


def drop_restarts(log_dir: Path) -> None:
    """Forget the restarts of an earlier run in this folder."""
    (log_dir / RESTARTS).unlink(missing_ok=True)
