"""Checks jobs without training: what an aggregator does before its first round, without executors or a port.

``python -m fedscale_ext.entry.job_check FILE`` checks the jobs that a driver wrote into FILE, a JSON list of objects:
``job`` is a name, ``argv`` the arguments of the job's processes, ``data`` says whether its data are there. ``digest``,
where it is there and not null, stands for the data that the run to resume had: others are refused. With ``prepare``
false, as for a job that has finished, nothing else is checked. Events on standard output: ``checking`` a job,
``progress`` of long work, then ``checked`` or ``refused``.
"""

import gc
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedscale_ext.config.job_config import JobConfig, from_argv, with_values
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.core.events import Emit, print_event
from fedscale_ext.data.job_data import check_same_data, data_arguments, open_job_data
from fedscale_ext.data.progress import Progress
from fedscale_ext.data.store import DataSet
from fedscale_ext.entry.in_process import without_port
from fedscale_ext.entry.launch import prepare_process, run_guarded
from fedscale_ext.server.aggregator import MultiModelAggregator
from fedscale_ext.server.announcements import ready_event
from fedscale_ext.training.augmentation.pictures import Augmentation
from fedscale_ext.transport.registration import read_registration, registration
from fedscale_ext.util.quantities import quantity
from fedscale_ext.util.reading import MEGA, read_json
from fedscale_ext.util.torch_devices import device_of

_PROGRESS_S = 0.25  # between two events of progress
_MOST_OPEN = 16  # data sets: jobs of a sweep share one per seed
_NAMED = 8  # models
_ONLINE = ": those online at its beginning and when they finish"
_MOST_BYTES = 256 * MEGA  # of the list of jobs


class DataSets:
    """The data sets of several jobs; what several of them read is opened once."""

    def __init__(self) -> None:
        self._opened: dict[str, DataSet] = {}

    def of(self, config: JobConfig, progress: Progress) -> DataSet:
        """The data set of a job; ``progress`` hears of samples decoded. UserError as ``open_data_set``."""
        key = repr(data_arguments(config.echo()))
        if key not in self._opened:
            if len(self._opened) == _MOST_OPEN:
                del self._opened[next(iter(self._opened))]
            self._opened[key] = open_job_data(config, progress)
        return self._opened[key]


@dataclass(frozen=True)
class Checked:
    """Facts about a job that can start: titles with words, and the ``notices`` that its aggregator gives; ``digest`` is
    that of its data, None where these were not opened."""

    facts: list[tuple[str, str]]
    notices: list[str]
    digest: str | None = None


def check_job(config: JobConfig, data_sets: DataSets, folder: Path, emit: Emit) -> Checked:
    """Do what a job's aggregator does before its first round; UserError where the job would end there.

    FedScale's aggregator puts its logs into ``folder``, which the caller removes. ``emit`` takes events of progress.
    """
    values = {"log_path": str(folder), "time_stamp": "check", "num_executors": 1, "this_rank": 0}
    config = with_values(config, **values, **({"wandb_token": ""} if config.fedscale.wandb_token else {}))
    method: Any = method_class(config.job.method)
    method.check_settings(config)  # before data are read, which may take long
    device = device_of(config.fedscale)
    data = data_sets.of(config, _Progress(emit))
    Augmentation.of(config.job.augment, data, device)  # as each executor does
    prepare_process(config)
    notices: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "notice":
            notices.append(event["message"])

    job = without_port(method)(config, hear)
    try:
        job.executors = [0]
        job.prepare(read_registration(registration(data, device, job.code)))
        return Checked(_facts(job, data), notices, data.digest)
    finally:
        job.stop()


def _facts(job: MultiModelAggregator, data: DataSet) -> list[tuple[str, str]]:
    """Data, devices, models and participants of an aggregator that is prepared, in words."""
    event = ready_event(job.config, job.data_info, job.population, 0, job.last_round(), job.log_dir)
    least, median, most = (quantity(float(figure(job.capacity))) for figure in (np.min, np.median, np.max))
    models = [f"{model.key} ({quantity(model.cost.forward_macs)} MACs)" for model in job.pool]
    more = f" and {len(models) - _NAMED} more" if len(models) > _NAMED else ""
    train, test = int(data.train_sizes.sum()), int(data.test_sizes.sum())
    return [
        ("data", f"{event['data']}, {event['clients']:,} clients, {data.num_classes:,} classes, {train:,} training and "
                 f"{test:,} test samples"),
        ("devices", f"{event['population']}; they afford {least} to {most} MACs per sample, the median {median}"),
        ("models", ", ".join(models[:_NAMED]) + more),
        ("participants", _participants(job, event["rounds"])),
    ]  # fmt: skip


def _participants(job: MultiModelAggregator, rounds: int) -> str:
    """How many clients train in each round; the most of them where devices may be offline: who is online when depends
    on the virtual time of rounds, which nobody knows before. Those that never are online are counted."""
    reachable = int((job.eligible & job.population.ever_online()).sum())
    bound, whom = ("", "") if job.population.availability is None else ("up to ", _ONLINE)
    count, eligible = min(job.args.num_participants, reachable), int(job.eligible.sum())
    never = eligible - reachable
    offline = f" ({never:,} of these {'is' if never == 1 else 'are'} never online)" if never else ""
    return f"{bound}{count:,} of {eligible:,} clients{offline} in each of {rounds:,} rounds{whom}"


class _Progress:
    """Tells how many samples are decoded, not too often."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._last = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= _PROGRESS_S:
            self._last = now
            of_all = f" of {total:,}" if total else ""
            self._emit({"event": "progress", "what": f"{done:,}{of_all} samples decoded"})


def check_settings(config: JobConfig) -> Checked:
    """The same for a job whose data are not here yet: what only the configuration tells."""
    method: Any = method_class(config.job.method)
    method.check_settings(config)
    return Checked([], [])


def _check(order: Mapping[str, Any], data_sets: DataSets, folder: Path) -> Checked:
    """Check one job as far as its order asks for; UserError where it cannot start, or be resumed."""
    config = from_argv(order["argv"])
    if (digest := order.get("digest")) is not None:
        check_same_data(config, data_sets.of(config, _Progress(print_event)).digest, digest, "the job ran")
    if not order.get("prepare", True):
        return Checked([], [])
    return check_job(config, data_sets, folder, print_event) if order["data"] else check_settings(config)


def check_jobs(orders: list[dict[str, Any]]) -> None:
    """Check jobs one after another, each told by an event; one that cannot start does not end the check."""
    data_sets = DataSets()
    with TemporaryDirectory(prefix="fedscale-check-") as folder:
        for order in orders:
            name = order["job"]
            print_event({"event": "checking", "job": name})
            try:
                checked = _check(order, data_sets, Path(folder))
                print_event({"event": "checked", "job": name, **asdict(checked)})
            except UserError as error:
                print_event({"event": "refused", "job": name, "message": str(error)})
            except Exception as error:  # of a method's own code: the job would end with it
                logging.exception(f"job {name}")
                print_event({"event": "refused", "job": name, "message": f"{type(error).__name__}: {error}"})
            gc.collect()  # an aggregator's parts know it: its models would stay for a while


def main() -> None:
    """Check the jobs in the file that the first argument names."""
    gc.freeze()  # what was imported stays: no collection walks it
    check_jobs(read_json(Path(sys.argv[1]), _MOST_BYTES))


if __name__ == "__main__":
    run_guarded(main)
