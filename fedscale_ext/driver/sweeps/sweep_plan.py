"""The jobs of a sweep: seeds and a grid of settings, checked before the first one starts."""

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedscale_ext.config.idle_settings import read_settings
from fedscale_ext.config.job_config import ConfFile, JobConfig, load_config
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.seed_names import with_seed
from fedscale_ext.driver import jobs, preparation, runs
from fedscale_ext.driver.jobs import Job
from fedscale_ext.driver.supervision import has_checkpoint
from fedscale_ext.driver.sweeps.sweep_records import Point
from fedscale_ext.metrics.job_folder.earlier_run import earlier_run
from fedscale_ext.util.commas import at_commas

_MOST = 1000
_NAMED = 4  # arms that a sentence names
_OWN = {
    "seed": "give seeds with --seeds",
    "job_name": "each job gets a name of its own",
    "ps_port": "each job gets one",
}
_CHANGED = "resume the sweep with the settings that it was started with, or start it anew without --resume"


def read_seeds(text: str) -> list[int]:
    """Seeds from ``0-4``, ``1,5,7`` or both, in the order given; UserError for anything else."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:\s*-\s*(\d{1,18}))?\s*", part)
        if not match:
            raise UserError(f"--seeds {text}: write seeds as 0-4 or 1,5,7")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= _MOST:
            raise UserError(f"--seeds {text}: {part.strip()} is no range of at most {_MOST:,} seeds, smaller first")
        seeds += range(first, last + 1)
    if len(set(seeds)) != len(seeds):
        raise UserError(f"--seeds {text}: a seed is named twice")
    return seeds


def read_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Key -> its values, from ``key=a,b``; commas within brackets belong to a value. UserError for anything else."""
    grid: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        choices = [value.strip() for value in at_commas(values)]
        if not equals or not key.strip() or not all(choices):
            raise UserError(f"--grid {text}: write it as key=a,b with a value between all commas")
        key = key.strip()
        if key in _OWN:
            raise UserError(f"--grid {text}: {key} cannot be on the grid; {_OWN[key]}")
        if key in grid or len(set(choices)) != len(choices):
            raise UserError(f"--grid {text}: {key if key in grid else 'a value'} is named twice")
        grid[key] = choices
    return grid


def read_points(conf: str | ConfFile, overrides: Sequence[str], seeds: str | None, grid: Sequence[str]) -> list[Point]:
    """The jobs of a sweep over --seeds and --grid; UserError for what these cannot be."""
    values, numbers = read_grid(grid), read_seeds(seeds) if seeds is not None else []
    _refuse_set_twice(overrides, seeds, grid)
    return points(load_config(conf, overrides).fedscale.job_name, numbers, values)


def _refuse_set_twice(overrides: Sequence[str], seeds: str | None, grid: Sequence[str]) -> None:
    """UserError for a key of --set that the jobs of the sweep have values of their own for: one would go unheard."""
    option_of_key = {text.partition("=")[0].strip(): f"--grid {text}" for text in grid}
    if seeds is not None:
        option_of_key["seed"] = f"--seeds {seeds}"
    for override in overrides:
        key = override.partition("=")[0]
        if key in option_of_key:
            raise UserError(f"--set {override} and {option_of_key[key]} both set {key}; remove one of them")


def points(base: str, seeds: Sequence[int], grid: dict[str, list[str]]) -> list[Point]:
    """A job for each combination of the grid and each seed, named after what is its own; all seeds of an arm follow
    one another."""
    points: list[Point] = []
    for values in itertools.product(*grid.values()):
        settings = tuple(f"{key}={value}" for key, value in zip(grid, values, strict=True))
        words = [f"{key.rpartition('.')[2]}_{value}" for key, value in zip(grid, values, strict=True)]
        arm = re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join([base, *words]))
        for seed in seeds or (None,):
            point_settings = (*settings, *([] if seed is None else [f"seed={seed}"]))
            points.append(Point(arm if seed is None else with_seed(arm, seed), arm, seed, point_settings))
    if len(points) > _MOST:
        raise UserError(f"seeds and grid make {len(points):,} jobs; at most {_MOST:,} go into a sweep")
    names = [point.name for point in points]
    if len(set(names)) != len(names) or max(map(len, names)) > 100:
        raise UserError("the jobs of this grid cannot be told apart by names of at most 100 letters, digits, '_', '-' "
                        "and '.': choose shorter values, or a shorter job_name")  # fmt: skip
    return points


def overrides_of(point: Point, overrides: Sequence[str], any_port: bool = True) -> list[str]:
    """All ``key=value`` of a job: those of the command and of the job, its name, and with ``any_port`` a free port."""
    return [*overrides, *point.settings, f"job_name={point.name}", *(["ps_port=auto"] if any_port else [])]


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep that can start, as far as that can be checked without torch, and their configurations.

    ``faults`` are sentences on jobs that cannot, by their names. ``repeats`` is one on jobs that are left out because
    they would repeat another one; None where there are none.
    """

    points: list[Point]
    configs: list[JobConfig]
    faults: dict[str, str]
    repeats: str | None

    def refuse_faults(self) -> None:
        """Raise a UserError for the first job that cannot start; it names the job and the setting."""
        for name, fault in self.faults.items():
            raise UserError(f"job {name} of the sweep: {fault}")


def prepared_here(config: JobConfig) -> JobConfig:
    """Check a job that this machine runs as ``check_start`` does, and hide its key; UserError if it cannot start."""
    config = preparation.hide_key(config)
    preparation.check_start(config)
    return config


def read_plan(
    conf: str | ConfFile,
    overrides: Sequence[str],
    seeds: str | None,
    grid: Sequence[str],
    prepared: Callable[[JobConfig], JobConfig] = prepared_here,
) -> Plan:
    """Plan a sweep over --seeds and --grid; UserError for what these cannot be, and for two names of one job.

    ``prepared`` checks the configuration of each job, and raises UserError for one that cannot start.
    """
    startable, configs, faults = [], [], {}
    points = read_points(conf, overrides, seeds, grid)
    for point in points:
        try:
            configs.append(prepared(load_config(conf, overrides_of(point, overrides))))
            startable.append(point)
        except UserError as error:
            faults[point.name] = str(error)
    refuse_equal(startable, configs)
    first: dict[str, Point] = {}
    repeated: dict[str, Point] = {}  # by the name of a job, the one that it would repeat
    for point, config in zip(startable, configs, strict=True):
        settings = {**read_settings(config), **config.cluster.model_dump(), "job_name": None}
        other = first.setdefault(_comparable(settings), point)
        if other is not point:
            repeated[point.name] = other
    remaining = [index for index, point in enumerate(startable) if point.name not in repeated]
    arms = dict.fromkeys((point.arm, repeated[point.name].arm) for point in startable if point.name in repeated)
    words = ", ".join(f"{arm} (as {other})" for arm, other in list(arms)[:_NAMED])
    words += f" and {len(arms) - _NAMED} more" if len(arms) > _NAMED else ""
    repeats = (
        f"{len(repeated)} of {len(points)} jobs of the grid would repeat another one, as they do not read what "
        f"differs, and are left out: {words}"
    )
    return Plan(
        [startable[index] for index in remaining],
        [configs[index] for index in remaining],
        faults,
        repeats if repeated else None,
    )


def _comparable(settings: Mapping[str, Any]) -> str:
    """Settings as text that is equal where they are: 1 and 1.0 are one number, also in lists; true is none."""
    return json.dumps(_with_equal_numbers(json.loads(json.dumps(settings, default=str))), sort_keys=True)


def _with_equal_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_equal_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_equal_numbers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def refuse_equal(points: Sequence[Point], configs: Sequence[JobConfig]) -> None:
    """Refuse two jobs that are one job under two names, as ``learning_rate=0.05,0.050`` makes them."""
    seen: dict[str, Point] = {}
    for point, config in zip(points, configs, strict=True):
        settings = {**config.echo(), **config.cluster.model_dump(), "job_name": None}
        other = seen.setdefault(_comparable(settings), point)
        if other is not point:
            one, two = (
                ", ".join(setting for setting in mine.settings if setting not in theirs.settings)
                for mine, theirs in ((other, point), (point, other))
            )
            raise UserError(f"--grid: {one} and {two} mean the same; remove one of them")


@dataclass(frozen=True)
class Resumed:
    """The jobs of a sweep that ``--resume`` leaves or continues.

    ``runs`` maps their names to the folders of their runs, ``finished`` are the records of those that have all rounds.
    """

    runs: Mapping[str, Path] = field(default_factory=dict)
    finished: Sequence[Job] = ()

    @property
    def finished_names(self) -> set[str]:
        """Names of the jobs that have all rounds."""
        return {record.name for record in self.finished}


def resumed_runs(configs: Sequence[JobConfig], earlier: Mapping[str, str]) -> Resumed:
    """The jobs whose run in ``earlier`` (name -> folder) has all its rounds, or a checkpoint.

    UserError for a job whose run, finished or half-way, had other settings than the job has now, or has done more
    rounds.
    """
    folders, finished = {}, []
    for config in configs:
        name, rounds = config.fedscale.job_name, config.fedscale.rounds
        if name not in earlier:
            continue
        run, last = Path(earlier[name]), jobs.read(name)
        record = last if last is not None and last.log_dir == run else None
        done = record is not None and record.status == "finished"
        done = done and (runs.rounds_done(run, record) >= rounds or (record is not None and record.complete(rounds)))
        done = done and bool(earlier_run(run).config)  # else its results are gone
        if not done and not has_checkpoint(run):
            continue  # starts anew
        runs.check_unchanged(config, run, _CHANGED)
        runs.check_rounds(config, run, record, anew="the sweep")
        folders[name] = run
        if record is not None and done:
            finished.append(record)
    return Resumed(folders, finished)


def refuse_running(points: Sequence[Point]) -> None:
    """Refuse a sweep while one of its jobs is running, which the lock of its name tells, as each job's start does."""
    for point in points:
        if jobs.read(point.name) is not None:
            with jobs.claim(point.name):
                pass
