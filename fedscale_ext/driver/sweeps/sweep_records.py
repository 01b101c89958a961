"""What is remembered of a sweep: which jobs it has, the run of each, and who runs it."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fedscale_ext.core.errors import UserError, listed
from fedscale_ext.driver import jobs
from fedscale_ext.driver.jobs import DamagedRecord, state_dir
from fedscale_ext.driver.processes import Proc
from fedscale_ext.driver.progress import counted
from fedscale_ext.util import full_disk
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.locks import lock

_LOCK = ".lock"  # how the file ends that the driver of a sweep holds
_NAMED = 4  # jobs that a sentence names
_STOP_S = 30.0  # a sweep stops its jobs within 12 s, and those of other machines within 25 s


@dataclass(frozen=True)
class Point:
    """A job of a sweep: its name, its arm's (the name without the seed), its seed and ``key=value`` settings."""

    name: str
    arm: str
    seed: int | None
    settings: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """Jobs of one configuration over seeds and a grid.

    ``grid`` maps a key to the values that were tried. ``runs`` maps the name of each started job to the folder of its
    run in this sweep. --resume continues these runs, and a report of the sweep shows them.
    """

    name: str
    conf: str
    overrides: tuple[str, ...]
    grid: dict[str, list[str]]
    points: tuple[Point, ...]
    driver: Proc
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def arms(self) -> list[str]:
        """Names of the arms, in order."""
        return list(dict.fromkeys(point.arm for point in self.points))

    def run_of(self, job: str) -> Path | None:
        """The folder of a job's run in this sweep, None where the sweep has not begun it."""
        return Path(self.runs[job]) if job in self.runs else None


def tried(grid: dict[str, list[str]], before: Sweep | None) -> dict[str, list[str]]:
    """Return the grid of a sweep with the values that it had tried before it was resumed."""
    earlier = before.grid if before is not None else {}
    return {key: list(dict.fromkeys([*earlier.get(key, ()), *grid.get(key, ())])) for key in {**earlier, **grid}}


def left_out(points: Sequence[Point], before: Sweep | None) -> list[Point]:
    """Return the jobs of a resumed sweep that are not among ``points``; they stay in it as they are."""
    names = {point.name for point in points}
    return [] if before is None else [point for point in before.points if point.name not in names]


def left_out_sentence(points: Sequence[Point]) -> str:
    """Tell of :func:`left_out`."""
    verb = "is" if len(points) == 1 else "are"
    names = listed([point.name for point in points], _NAMED)
    return f"{counted(len(points), 'job')} of the sweep that these options do not name {verb} left as before: {names}"


def folder() -> Path:
    """Folder that remembers sweeps; created if missing."""
    path = state_dir() / "sweeps"
    path.mkdir(exist_ok=True)
    return path


def names() -> list[str]:
    """Names of all sweeps that were ever started here."""
    return sorted(path.stem for path in folder().glob("*.json"))


def read(name: str) -> Sweep | None:
    """A sweep by its name, None if there is none."""
    return _read(name) if name in names() else None


def _read(name: str) -> Sweep:
    """The sweep whose record there is."""
    path = folder() / f"{name}.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        points = tuple(Point(**{**point, "settings": tuple(point["settings"])}) for point in data["points"])
        data = {**data, "overrides": tuple(data["overrides"]), "points": points, "driver": Proc(**data["driver"])}
        if "runs" not in data:
            data["runs"] = _last_runs(points)
        return Sweep(**data)
    except (ValueError, TypeError, KeyError):
        raise DamagedRecord(f"the record {path} of sweep {name} is damaged; delete it") from None


def _last_runs(points: Sequence[Point]) -> dict[str, str]:
    """The runs of a sweep whose record is of a release that did not keep them: the last of each job."""
    records = [jobs.read_intact(point.name) for point in points]
    return {record.name: str(record.log_dir) for record in records if record is not None}


def write(sweep: Sweep) -> None:
    """Put the record in place in one step."""
    write_atomic(folder() / f"{sweep.name}.json", json.dumps(asdict(sweep), indent=1), mode=0o600)


def conf_path(name: str) -> Path:
    """Path of the configuration that the jobs of a sweep read: a copy from the beginning of the sweep."""
    return folder() / f"{name}.yml"


def write_conf(name: str, content: bytes) -> None:
    """Keep a sweep's configuration, for its user only: it may hold a key."""
    write_atomic(conf_path(name), content, mode=0o600)


def jobs_of(word: str) -> dict[str, Path | None]:
    """Jobs of the sweep, or the arm of a sweep, that ``word`` names; empty for any other word.

    Each has the folder of its run in the sweep, None where it has not begun. A job's last run may be another one.
    DamagedRecord where no other sweep knows the word.
    """
    if (sweep := read(word)) is not None:
        return {point.name: sweep.run_of(point.name) for point in sweep.points}
    intact, damaged = recorded()
    for sweep in intact:
        if word in sweep.arms and word not in {point.name for point in sweep.points}:
            return {point.name: sweep.run_of(point.name) for point in sweep.points if point.arm == word}
    if damaged:
        raise DamagedRecord(f"no job, sweep or arm that can be read is called {word}, and {damaged[0]}")
    return {}


def of_job(name: str) -> Sweep | None:
    """The sweep that a job belongs to; None for a job of its own. DamagedRecord where that cannot be told."""
    intact, damaged = recorded()
    sweep = next((sweep for sweep in intact if name in {point.name for point in sweep.points}), None)
    if sweep is None and damaged:
        raise damaged[0]
    return sweep


def stop(driver: Proc) -> bool:
    """Have a sweep's driver stop its jobs and end, and wait until it is gone; False if it does not run.

    Jobs that outlive a driver which was killed stop by themselves."""
    return jobs.stop_driver(driver, _STOP_S)


@contextmanager
def claim(name: str) -> Iterator[None]:
    """Hold the name for the life of a sweep's driver, this process; its lock says who it is."""
    path = folder() / f"{name}{_LOCK}"
    try:
        claimed = lock(path)
    except BlockingIOError:
        raise UserError(f"sweep {name} is running; wait for it, or stop it with Ctrl-C where it runs") from None
    with claimed:
        claimed.truncate(0)
        with full_disk.naming(path):
            claimed.write(json.dumps(asdict(Proc.of("sweep", os.getpid()))).encode())
        try:
            yield
        finally:
            claimed.truncate(0)


def claimant(name: str) -> Proc | None:
    """The running process that holds a sweep's name, from the check of its jobs on; None where nobody does."""
    path = folder() / f"{name}{_LOCK}"
    if path not in folder().iterdir():
        return None
    with suppress(ValueError, TypeError):  # nobody holds it
        driver = Proc(**json.loads(path.read_text(encoding="utf-8")))
        return driver if driver.running() else None
    return None


def recorded() -> tuple[list[Sweep], list[DamagedRecord]]:
    """All sweeps whose records can be read, and errors that name the other records."""
    intact, damaged = [], []
    for name in names():
        try:
            intact.append(_read(name))
        except DamagedRecord as error:
            damaged.append(error)
    return intact, damaged
