"""A job as its folder tells of it, finished or not: what reports and leaderboards are made of."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedscale_ext.config.changed_settings import completed
from fedscale_ext.config.idle_settings import is_unread
from fedscale_ext.config.job_config import decisive
from fedscale_ext.config.keys import JobKeys
from fedscale_ext.core.errors import UserError, meant_or_known
from fedscale_ext.core.types import Evaluation, RoundRecord, is_personal
from fedscale_ext.data.named_files import FileDigests
from fedscale_ext.metrics.accuracy import client_accuracy
from fedscale_ext.metrics.job_folder.clients_file import CLIENTS, Clients, read_clients
from fedscale_ext.metrics.job_folder.evaluations import StoredEvaluation
from fedscale_ext.metrics.job_folder.file_names import HEADER, METRICS
from fedscale_ext.metrics.job_folder.header import JobHeader, check_header
from fedscale_ext.metrics.job_folder.round_records import read_records
from fedscale_ext.metrics.summary import SUMMARY, JobResult, summarise
from fedscale_ext.report.job.schema import Summary
from fedscale_ext.util.reading import MEGA, read_json
from fedscale_ext.util.validation import faults_raise

DEVICE_FILES = ("device_conf_file", "device_avail_file")

DataKey = tuple[str, str]  # name and digest of data


@dataclass(frozen=True)
class LoadedJob:
    """A job's folder, read: ``summary`` as in summary.json; where it has not ended, that of its rounds so far.

    ``failure`` is why it failed, "" where it did not or nobody knows. A job can fail with its results written.
    """

    folder: Path
    header: JobHeader
    summary: Mapping[str, Any]
    records: Sequence[RoundRecord]
    finished: bool
    failure: str = ""

    @property
    def name(self) -> str:
        """Name of the job, the configuration's job_name."""
        return self.header["job_name"]

    @property
    def seed(self) -> int:
        """Seed of its random draws."""
        return self.header["seed"]

    @property
    def data(self) -> str:
        """Name of its data, with a word where they are generated."""
        data = self.header["data"]
        return f"{data['name']} (generated)" if data["generated"] else data["name"]

    @property
    def num_classes(self) -> int | None:
        """Number of classes of its models; None where they do not say, or the job has not ended."""
        counts = [model["spec"].get("num_classes") for model in self.summary.get("models", ())]
        return next((count for count in counts if isinstance(count, int)), None)

    @property
    def digest(self) -> str:
        """Digest of its data."""
        return self.header["data"]["digest"]

    @property
    def data_key(self) -> DataKey:
        """What tells its data from those of other jobs."""
        return self.data, self.digest

    @property
    def tested(self) -> list[RoundRecord]:
        """The rounds after which clients were tested."""
        return [record for record in self.records if record.evaluation is not None]

    @property
    def rounds_asked(self) -> int:
        """Number of rounds in its configuration."""
        return self.header["config"]["rounds"]

    @property
    def rounds_done(self) -> int:
        """Number of rounds done; fewer than requested where it stopped early."""
        return self.records[-1].round

    @property
    def devices(self) -> dict[str, str]:
        """Identity of its devices: for each device file its digest, or its path for jobs of earlier versions."""
        files = {key: self.header["config"].get(key) for key in DEVICE_FILES}
        return {key: self.named_files.get(key, {}).get(str(path), str(path)) for key, path in files.items() if path}

    @property
    def progress(self) -> str:
        """The rounds that it has done, in words."""
        return f"round {self.records[-1].round} of {self.rounds_asked}"

    @property
    def state(self) -> str:
        """Rounds done so far, and the round of the last test where that is an earlier one."""
        if not self.tested or self.tested[-1].round == self.records[-1].round:
            return self.progress
        return f"{self.progress}, tested after round {self.tested[-1].round}"

    @property
    def named_files(self) -> FileDigests:
        """Digests of the files that its settings name; none where an earlier version ran it."""
        return self.header.get("named_files", {})

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings that decide its result, without the seed; hyperparameters have dotted names."""
        settings = decisive(self._configured) | {"rounds": self.rounds_asked} | self._params
        return {key: value for key, value in settings.items() if key != "seed"}

    @cached_property
    def _params(self) -> dict[str, Any]:
        """All hyperparameters of its method, by dotted names."""
        return {f"{self.header['method']}.{key}": value for key, value in self.header["params"].items()}

    @cached_property
    def _configured(self) -> dict[str, Any]:
        """Its settings, but for hyperparameters of the method that nobody set."""
        # the digest of the data tells the samples of a release in which seed decided them
        return completed({"data_seed": JobKeys.model_fields["data_seed"].default, **self.header["config"]})

    def same_setting(self, other: "LoadedJob", key: str) -> bool:
        """Tell whether another job has a setting in the same way: files by their contents, where both jobs know these,
        and what the data folder holds by its digest. A setting that neither reads is the same."""
        if key == "data_dir":
            return self.digest == other.digest
        if self._leaves_unread(key) and other._leaves_unread(key):
            return True
        mine, others = self.settings.get(key), other.settings.get(key)
        if key not in self.named_files or key not in other.named_files:
            return bool(mine == others)
        return bool(_contents(mine, self.named_files[key]) == _contents(others, other.named_files[key]))

    def compared_by(self, key: str) -> Literal["nothing", "contents", "value"]:
        """Return what :meth:`same_setting` compares of a setting, if the other job has the same kind of it."""
        if self._leaves_unread(key):
            return "nothing"
        return "contents" if key in self.named_files else "value"

    def compared_value(self, key: str) -> Hashable:
        """Return the value that jobs of one :meth:`compared_by` share exactly where the setting is the same."""
        how, value = self.compared_by(key), self.settings.get(key)
        if how == "nothing":
            return None
        return _hashable(_contents(value, self.named_files[key]) if how == "contents" else value)

    def _leaves_unread(self, key: str) -> bool:
        if key not in self._unread:
            # a key of the job may be unread because one of the method was set, whose default would leave it read
            settings = self._params | self._configured if "." in key else self._configured
            self._unread[key] = is_unread(settings, key)
        return self._unread[key]

    @cached_property
    def _unread(self) -> dict[str, bool]:
        """Whether the job leaves a key unread, for the keys that were asked about."""
        return {}

    def shown_setting(self, key: str, *, contents: bool = False) -> str:
        """A setting in words: the name of a file, with the head of its digest where ``contents``, and the learning rate
        as it was used."""
        value = self.settings.get(key)
        if value is None:
            return "–"
        least = None if self._leaves_unread("min_learning_rate") else self.settings.get("min_learning_rate")
        if key == "learning_rate" and least is not None and value < least:
            return f"{value} (used {least})"
        text = str(value)
        digest = self.named_files.get(key, {}).get(text, "") if contents else ""
        name = text.rpartition("/")[2] if text.endswith(".json") else text
        return f"{name} ({digest[:8]})" if digest else name

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """The last test of the clients, in memory; None where there was none."""
        last = self.tested[-1].evaluation if self.tested else None
        evaluation = last.whole() if isinstance(last, StoredEvaluation) else last
        if evaluation is not None and len(evaluation.count) != self.header["num_clients"]:
            raise UserError(
                f"{self.folder} is damaged: its last evaluation is not of {self.header['num_clients']} clients"
            )
        return evaluation

    @cached_property
    def client_accuracy(self) -> np.ndarray:
        """float64[clients] of the last test, NaN for a client that was not tested; empty where there was none."""
        return client_accuracy(self.evaluation) if self.evaluation is not None else np.array([])

    @cached_property
    def personal(self) -> bool:
        """True if its clients were tested on personal models, which no other client is served."""
        return self.evaluation is not None and any(map(is_personal, dict.fromkeys(self.evaluation.serve)))

    @cached_property
    def affords(self) -> tuple[float, float] | None:
        """MACs per sample that its weakest and its strongest client afford; None where they are not known."""
        if self.clients is None or not len(self.clients.capacity):
            return None
        return float(self.clients.capacity.min()), float(self.clients.capacity.max())

    @property
    def masked(self) -> bool:
        """True if the test of its clients masked the logits of classes that they lack (``mask_test``)."""
        return "unmasked" in (self.summary["accuracy"] or {})

    @property
    def began(self) -> int:
        """When its header was written, in nanoseconds: tells the newer of two runs."""
        return (self.folder / HEADER).stat().st_mtime_ns

    @property
    def notices(self) -> list[str]:
        """Sentences that it gave, in their order; none where an earlier version ran it."""
        return list(self.summary.get("notices", ()))

    @cached_property
    def clients(self) -> Clients | None:
        """Capacities and samples of its clients; None where an earlier version ran it."""
        clients = read_clients(self.folder)
        if clients is not None and len(clients.capacity) != self.header["num_clients"]:
            raise UserError(f"{self.folder / CLIENTS} is not of {self.header['num_clients']} clients, as the job is")
        return clients

    def client_number(self, name: str) -> int:
        """Return the number of a client, from 1 on, by the name that the data give it; UserError for no such client."""
        if self.clients is None or not self.clients.names:
            raise UserError(
                f"{self.name} tells of no client {name!r:.80}: {self.folder / CLIENTS} is missing or has no names; "
                "restore it, or run the job again"
            )
        names = list(self.clients.names)
        if name not in names:
            raise UserError(f"{self.name} tells of no client {name!r:.80}{meant_or_known(str(name), names)}")
        return names.index(name) + 1


def _contents(value: Any, digests: Mapping[str, str]) -> Any:
    """A setting with the digests of the files that it names in place of their paths."""
    if isinstance(value, list):
        return [_contents(entry, digests) for entry in value]
    return digests.get(value, value) if isinstance(value, str) else value


def _hashable(value: Any) -> Hashable:
    """A JSON value as one that is equal to others exactly where the JSON values are."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((key, _hashable(entry)) for key, entry in value.items())
    return value


class NoRound(UserError):
    """A job of which no round has ended; ``name`` is its job_name, or that of the folder of its runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder} holds no {METRICS} with a round; give the log folder of a job that has trained")
        try:
            self.name = _header(folder)["job_name"]
        except UserError:
            self.name = folder.parent.name


def load_job(folder: Path, failure: str = "") -> LoadedJob:
    """Read the log folder of a job that has trained at least one round; NoRound for one that has not, UserError for
    anything else. ``failure`` is why it failed, as far as that is known."""
    records = read_records(folder / METRICS)
    if not records:
        raise NoRound(folder)
    header = _header(folder)
    if (folder / SUMMARY).exists():
        summary = _object(folder / SUMMARY, check_header, Summary.model_validate)
        return LoadedJob(folder, header, summary, records, True, failure)
    clients = read_clients(folder)
    summary = summarise(header, None, JobResult(records), client_names=None if clients is None else clients.names)
    return LoadedJob(folder, header, summary, records, False, failure)


def _header(folder: Path) -> JobHeader:
    header: Any = _object(folder / HEADER, check_header)
    return header


def _object(path: Path, *checks: Callable[[Any], object]) -> dict[str, Any]:
    try:
        content = read_json(path, 1024 * MEGA)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UserError(f"{path} is damaged: it is no JSON") from None
    with faults_raise(UserError, f"{path} is damaged, or of another version: "):
        for check in checks:
            check(content)
    return content


class FineTunedJob(LoadedJob):
    """A job whose accuracy is that after fine-tuning; what fine-tuning cost is not counted, so it has no cost."""

    @cached_property
    def personal(self) -> bool:
        """Each client tuned a copy of its own."""
        return True

    @cached_property
    def client_accuracy(self) -> np.ndarray:
        """float64[clients] after fine-tuning, NaN for a client that was not tested."""
        values = self.summary["accuracy"].get("per_client", ())
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def fine_tuned(job: LoadedJob) -> FineTunedJob | None:
    """The job after fine-tuning; None where its clients did not fine-tune."""
    tuned = job.summary.get("personalised")
    if not tuned or not tuned["tested"]:
        return None
    summary = {**job.summary, "accuracy": {**tuned, "named": {}}, "personalised": None, "on_all": None,
               "by_class": None}  # fmt: skip
    return FineTunedJob(
        job.folder, job.header, {**summary, "cost": {}, "time": {}}, job.records, job.finished, job.failure
    )
