"""One round of a job, computed again from the checkpoint before it, in a folder of its own."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from fedscale_ext.config.job_config import OF_A_PROCESS, SECRET, JobConfig, with_values
from fedscale_ext.config.recorded import recorded_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.metrics.job_folder.chain import VOLATILE
from fedscale_ext.metrics.job_folder.evaluations import FOLDER as EVALUATIONS
from fedscale_ext.metrics.job_folder.file_names import HEADER, INTERNALS, METRICS
from fedscale_ext.metrics.job_folder.header import JobHeader
from fedscale_ext.metrics.job_folder.json_lines import GrowingFile, Mark
from fedscale_ext.metrics.job_folder.jsonable import line as json_line
from fedscale_ext.metrics.job_folder.round_records import read_lines
from fedscale_ext.server.checkpoints import checkpoint_file
from fedscale_ext.util.reading import MEGA, read_json

#: How far figures may differ where another processor or program rounds otherwise: by this, or by this share of them.
TOLERANCE = 0.02
_OF_THE_RUN = OF_A_PROCESS | SECRET | {"job_name"}  # a replay is another process, in a folder of its own
_NAME = "replay"
_NOT_FIGURES = {"sha256", "clients", "worst_client"}  # of an evaluation: these follow from single bits


class _RoundIsOver(Exception):
    """The round that is replayed has been recorded."""


def replay(
    folder: Path,
    settings: Mapping[str, Any],
    line: Mapping[str, Any],
    scratch: Path,
    data_dir: str | None = None,
    rounds: int | None = None,
) -> tuple[dict[str, Any], JobHeader]:
    """Compute a round again.

    Args:
        folder: The job's folder. It must have the checkpoint of the round before, unless the round is the first.
        settings: ``config`` of its header.json.
        line: The round's line of metrics.jsonl.
        scratch: An empty folder for what the replay writes.
        data_dir: Where the data are, if not where they were.
        rounds: How many rounds the job has, if not as many as ``settings`` say. It is tested as one that ends there.

    Returns:
        The round's line and the header as the replay wrote them.

    Raises:
        UserError: If the job cannot be continued from there: its data, files or method are missing.

    """
    round = int(line["round"])
    config = _config({**settings, **({} if rounds is None else {"rounds": rounds})}, line, scratch, data_dir)
    target = scratch / "logs" / _NAME / _NAME
    if round > 1:
        config = with_values(config, resume_from=round - 1)
        _copy_until(folder, target, round - 1, config)

    def stop(event: Mapping[str, Any]) -> None:
        if event["event"] == "round" and event["round"] == round:
            raise _RoundIsOver

    from fedscale_ext.entry.in_process import run_in_process

    with suppress(_RoundIsOver):
        run_in_process(config, stop)
    return read_lines(target / METRICS)[-1], read_json(target / HEADER, 1024 * MEGA)


def differing(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> list[str]:
    """Return what differs between two lines of a round, by name; empty where they agree to the last bit."""
    different = [name for name in _compared(recorded, replayed) if recorded.get(name) != replayed.get(name)]
    digests = (recorded["digests"], replayed["digests"])
    return [
        name for name in ("models", "states", "clients") if digests[0].get(name) != digests[1].get(name)
    ] + different


def far_apart(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> list[str]:
    """Return the figures that differ by more than :data:`TOLERANCE`, and other fields that differ at all, by name."""
    return [name for name in _compared(recorded, replayed) if not _close(recorded.get(name), replayed.get(name))]


def _compared(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> list[str]:
    return [name for name in {**recorded, **replayed} if name not in VOLATILE | {"digests"}]


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        names = {*one, *other} - _NOT_FIGURES
        return all(_close(one.get(name), other.get(name)) for name in names)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(one == other)


def _config(settings: Mapping[str, Any], line: Mapping[str, Any], scratch: Path, data_dir: str | None) -> JobConfig:
    """The job's configuration, to run in ``scratch``: on a GPU if the job used one and there is one."""
    config = recorded_config({key: value for key, value in settings.items() if key not in _OF_THE_RUN})
    values: dict[str, Any] = {"log_path": str(scratch), "job_name": _NAME, "time_stamp": _NAME}
    values["use_cuda"] = bool(settings.get("use_cuda")) and torch.cuda.is_available()
    if data_dir is not None:
        values["data_dir"] = data_dir
    sizes = set(line.get("cohort_sizes", {}).values())
    if len(sizes) == 1 and not isinstance(config.job.cohort_size, int):
        values["cohort_size"] = sizes.pop()  # was chosen by the clock of the job's machine, and decides rounding
    return with_values(config, **values)


def _copy_until(folder: Path, target: Path, round: int, config: JobConfig) -> None:
    """Copy what a job needs that continues after ``round``; its checkpoint gets the settings of the replay."""
    before = checkpoint_file.read(checkpoint_file.written_rounds(folder / "checkpoints")[round])
    target.mkdir(parents=True)
    marks = {name: _copy_lines(folder / name, target / name, round) for name in before.data["records"]
             if name in (METRICS, INTERNALS)}  # fmt: skip
    data = {**before.data, "records": marks}
    checkpoint_file.save(target / "checkpoints", round, before.tensors, data, config.decisive(), keep=1)
    for path in _files_until(folder, round):
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def _files_until(folder: Path, round: int) -> Iterator[Path]:
    """Name the evaluations up to a round, and the newest file of each client by then."""
    for path in (folder / EVALUATIONS).glob("*.safetensors"):
        if _round_of(path) <= round:
            yield path
    newest: dict[tuple[Path, str], Path] = {}
    for kind in client_folders(folder):
        for path in kind.glob("*/*-*.safetensors"):
            client = path.parent, path.stem.rpartition("-")[0]
            if _round_of(newest.get(client, path)) <= _round_of(path) <= round:
                newest[client] = path
    yield from newest.values()


def _round_of(path: Path) -> float:
    """Round that wrote a file, by its name; of other names, later than all rounds."""
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else math.inf


def _copy_lines(path: Path, target: Path, until: int) -> Mark:
    """Copy the lines of the first rounds, and mark their end for the checkpoint.

    They are not compared with the job's own mark: the chain tells whether they were changed.
    """
    file = GrowingFile(target)
    for line in read_lines(path):
        if line["round"] <= until:
            file.append(json_line(line))
    mark = file.mark()
    file.close()
    return mark


def client_folders(folder: Path) -> Sequence[Path]:
    """Return the folders of a job with files of clients' tensors (tasks/client_files.py)."""
    kinds = {path.parents[1] for path in folder.glob("*/*/*-*.safetensors")}
    if any(path.is_symlink() for path in kinds):
        raise UserError(f"{folder} has links to other folders; copy what they name to where they stand")
    return sorted(kinds)
