"""FedScale's leaderboard with one's own rows in their places."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedscale_ext.core.errors import UserError
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.cautions import repeat_words
from fedscale_ext.report.compare.grouping import arms_of
from fedscale_ext.report.compare.published import LEADERBOARD
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.report.leaderboard.entry import CLIENTS, SEEDS, board_data, of_its_size
from fedscale_ext.util.reading import MEGA, read_json

TITLES = ("data set", "method", "model", "accuracy", "rounds", "hours", "by")


def board(data: str | None, entries: Path, jobs: Sequence[Path]) -> tuple[list[list[str]], list[str]]:
    """Rows of the leaderboard under :data:`TITLES`, and notes on entries and jobs that it leaves out.

    Rows are best first within each data set; ``data`` names the only one. Jobs with other numbers of clients than
    FedScale's come last. ``entries`` is a folder of entries; ``jobs`` are log folders of finished jobs.
    """
    rows = [
        (row.data, False, row.accuracy,
         [row.data, row.method, row.model, _accuracy(row.accuracy, row.std), _whole(row.rounds), _whole(row.hours),
          "FedScale"]) for row in LEADERBOARD
    ]  # fmt: skip
    notes: list[str] = []
    for path in sorted(entries.glob("*.json")):
        rows.append(_entry_row(path))
    loaded, generated = _usable(jobs, notes)
    for arm in arms_of(loaded):
        rows.append(_arm_row(arm))
        notes += repeat_words(arm)
    if generated:
        notes.append(f"left out: {generated} of your jobs on generated data")
    order = list(CLIENTS)
    rows.sort(key=lambda row: (order.index(row[0]), row[1], -row[2]))
    return [cells for name, _, _, cells in rows if data in (None, name)], notes


def _usable(folders: Sequence[Path], notes: list[str]) -> tuple[list[LoadedJob], int]:
    """The jobs on a data set of the leaderboard, and how many were on generated data; notes what cannot be read."""
    loaded, generated = [], 0
    for folder in folders:
        try:
            job = load_job(folder)
        except UserError as error:
            notes.append(f"left out: {error}")
            continue
        if job.finished and job.summary["accuracy"] and board_data(job) is not None:
            if job.header["data"]["generated"]:
                generated += 1
            else:
                loaded.append(job)
    return loaded, generated


def _arm_row(arm: Arm) -> tuple[str, bool, float, list[str]]:
    """An arm by only its jobs' summaries: what was kept of each client is not read."""
    job = arm.jobs[0]
    data, other = str(board_data(job)), not of_its_size(job)
    values = [float(each.summary["accuracy"]["sample_weighted"] or 0.0) for each in arm.jobs]
    hours = statistics.mean(each.summary["time"]["virtual_s"] for each in arm.jobs) / 3600
    by = f"you, {len(set(arm.seeds) & set(SEEDS))} of 5 seeds"
    if other:
        by += f", {job.header['num_clients']:,} clients"
    mean, std = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None
    model = Path(job.header["config"]["model"]).stem
    cells = [data, arm.label, model, _accuracy(mean, std), str(job.summary["rounds"]), f"{hours:.1f}", by]
    return data, other, mean, cells


def _entry_row(path: Path) -> tuple[str, bool, float, list[str]]:
    try:
        entry: Any = read_json(path, 16 * MEGA)
        mean, std = float(entry["test_accuracy_mean"]), float(entry["test_accuracy_std"])
        data = str(entry["dataset"])
        cells = [data, str(entry["method"]), str(entry["model"]), _accuracy(mean, std), str(entry["rounds"]),
                 f"{float(entry['hours']):.1f}", "you, entry"]  # fmt: skip
        if data not in CLIENTS:
            raise ValueError
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} is no entry for the leaderboard; --entries names the folder of yours") from None
    return data, False, mean, cells


def _accuracy(mean: float, std: float | None) -> str:
    return f"{mean:.4f}" + ("" if std is None else f"±{std:.4f}")


def _whole(value: int | None) -> str:
    return "–" if value is None else str(value)
