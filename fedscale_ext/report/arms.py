"""Jobs grouped over their seeds, and which of them compete in which figure."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedscale_ext.core.seed_names import without_seeds
from fedscale_ext.report import affordable
from fedscale_ext.report.columns import BY_KEY, FIGURES, Column
from fedscale_ext.report.disqualified import disqualified
from fedscale_ext.report.loading import LoadedJob, fine_tuned

_NAMED_SETTINGS = 3  # more different settings than these do not name an arm
_NAME = 44  # letters of a name in a plot
_RELATIVE = 1e-9  # values that differ by no more than this are equal but for rounding
OVERCOMMITMENT = "overcommitment"
_OF_ROUNDS = {"macs", "network", "time"}  # figures that grow with each round
_OF_DEVICES = {"macs", "network", "round_mb", "suite", "served", "time"}  # that depend on what devices afford
_OF_UPDATES = {"macs", "network", "round_mb"}  # that count the updates that were accepted
_FEW = 0.05  # a share too small to mention: of clients beyond capacity, of updates that failed
# mask_test changes these
_OF_MASKED_TESTS = {"accuracy", "tuned", "samples", "iqr", "worst_tenth", "balanced", "macro_f1", "auc"}
_ABSOLUTE = 1e-12  # the same beside zero: far below a client's accuracy, a byte in MB and a second

DataKey = tuple[str, str]  # name and digest of data


@dataclass(frozen=True)
class Arm:
    """Jobs that differ only in their seed; ``label`` tells them from the other arms.

    ``data`` is the name of their data, with a number where other data have it too. Figures are of ``jobs``, one a seed:
    where some have ended, those that have not are ``unfinished``. ``repeats`` are jobs with a seed that another has.
    Arms of one number ``afford`` have devices that afford the same.
    """

    label: str
    jobs: Sequence[LoadedJob]
    data: str
    unfinished: Sequence[LoadedJob] = ()
    repeats: Sequence[LoadedJob] = ()
    afford: int = 0

    @property
    def every_job(self) -> list[LoadedJob]:
        """Its jobs with those that its figures leave out."""
        return [*self.jobs, *self.unfinished, *self.repeats]

    @property
    def count(self) -> str:
        """The number of its jobs, and of how many where some are unfinished."""
        known = len(self.jobs)
        return f"{known} of {known + len(self.unfinished)}" if self.unfinished else str(known)

    @property
    def digest(self) -> str:
        """Digest of the data."""
        return self.jobs[0].digest

    @property
    def personal(self) -> bool:
        """True if clients are tested on personal models."""
        return any(job.personal for job in self.jobs)

    @property
    def beyond_capacity(self) -> int:
        """Clients that train what their devices do not afford, if they are more than a twentieth of all, else 0."""
        most = max(int(job.header.get("beyond_capacity", 0)) for job in self.jobs)
        return most if most > _FEW * int(self.jobs[0].header["num_clients"]) else 0

    @property
    def generated(self) -> bool:
        """True if the data are generated."""
        return bool(self.jobs[0].header["data"]["generated"])

    @property
    def uncounted(self) -> int:
        """Updates that failed or were refused, if they are more than a twentieth of all, else 0.

        What their clients trained and sent is not in the costs.
        """
        clients = [job.summary["clients"] for job in self.jobs]
        failed = sum(int(each["failed_total"]) for each in clients)
        asked = failed + sum(int(each["participations"]) for each in clients)
        return failed if failed > _FEW * asked else 0

    @property
    def masked(self) -> bool:
        """True if tests mask the logits of classes that a client lacks."""
        return any(job.masked for job in self.jobs)

    def comparable(self, figure: Column) -> tuple[Any, ...]:
        """Conditions that arms must share to compete in a figure.

        These are the samples (data sets of one name may hold others) and whether they are generated, the rounds that
        were requested, whether models are personal, whether clients train what their devices do not afford and, for the
        figures of such tests, whether tests mask logits. Costs also need the same rounds done, and the same devices,
        which must afford the same. They need the same overcommitment, since clients that are too slow to count cost
        nothing. Neither do clients whose update failed or was refused: arms with and without many of them do not
        compete in costs.
        """
        job = self.jobs[0]
        done = sorted(job.rounds_done for job in self.jobs) if figure.key in _OF_ROUNDS else []
        devices = job.devices if figure.key in _OF_DEVICES else {}
        rounds = tuple(dict.fromkeys(done))
        costs = figure.key in _OF_ROUNDS or figure.key in _OF_DEVICES
        overcommitment = job.settings.get(OVERCOMMITMENT) if costs else None
        complete = self.uncounted == 0 if figure.key in _OF_UPDATES else None
        masked = self.masked and figure.key in _OF_MASKED_TESTS
        afford = self.afford if figure.key in _OF_DEVICES else None
        shared = self.digest, self.generated, job.rounds_asked, self.personal, self.beyond_capacity > 0, masked
        return *shared, rounds, overcommitment, complete, afford, *sorted(devices.items())

    @property
    def seeds(self) -> list[int]:
        """Seeds of the jobs, in their order."""
        return [job.seed for job in self.jobs]

    @cached_property
    def disqualified(self) -> str | None:
        """Why it may not be the best of a column, in a clause; None where it may."""
        return disqualified(self.jobs, self.unfinished)

    @cached_property
    def figures(self) -> dict[str, list[float]]:
        """Key of a figure -> its values, one a job; without figures that a job does not have."""
        values = {figure.key: [figure.get(job) for job in self.jobs] for figure in FIGURES}
        return {
            key: [float(one) for one in each if one is not None] for key, each in values.items() if None not in each
        }

    def mean(self, key: str) -> float | None:
        """Mean of a figure over the seeds."""
        values = self.figures.get(key)
        return float(np.mean(values)) if values else None

    def std(self, key: str) -> float | None:
        """Standard deviation of a figure over the seeds (unbiased); None for one seed."""
        values = self.figures.get(key, ())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None

    @property
    def state(self) -> str:
        """Progress of the unfinished jobs with the round of their last test; empty where all have ended."""
        return ", ".join(job.state for job in self.jobs if not job.finished)

    @property
    def progress(self) -> str:
        """Progress of the unfinished jobs; empty where all have ended."""
        return ", ".join(job.progress for job in self.jobs if not job.finished)


def with_fine_tuned(arms: Sequence[Arm]) -> list[tuple[int, Arm]]:
    """The rows of a table: each arm with its place among ``arms``, and after it the same arm fine-tuned, if it was."""
    rows = []
    for index, arm in enumerate(arms):
        rows.append((index, arm))
        tuned = [one for one in map(fine_tuned, arm.jobs) if one is not None]
        if len(tuned) == len(arm.jobs):
            rows.append((index, replace(arm, label=f"{arm.label}, fine-tuned", jobs=tuned)))
    return rows


def shown(arms: Sequence[Arm], by_class: bool = False) -> list[Column]:
    """The columns of a comparison of these arms; ``by_class``: those of classes, too."""
    jobs = [job for arm in arms for job in arm.jobs]
    return [figure for figure in FIGURES
            if (by_class or not figure.of_classes)
            and (not figure.rare or any(figure.get(job) is not None for job in jobs))]  # fmt: skip


def arms_of(jobs: Sequence[LoadedJob]) -> list[Arm]:
    """Group jobs that differ only in their seed, in the order of ``jobs``.

    Files that settings name count with their contents, wherever they lie. Jobs of earlier versions did not record
    these: such a job joins the first arm whose settings name the same paths.
    """
    arms: list[list[LoadedJob]] = []
    for job in jobs:
        for group in arms:
            if all(_same(job, other) for other in group):
                group.append(job)
                break
        else:
            arms.append([job])
    data = _data_names(jobs)
    named = [_arm(label, group, data) for label, group in zip(_labels(arms, data), arms, strict=True)]
    afford = affordable.groups([arm.jobs for arm in named])
    return [replace(arm, afford=number) for arm, number in zip(named, afford, strict=True)]


def _arm(label: str, jobs: Sequence[LoadedJob], data: Mapping[DataKey, str]) -> Arm:
    """The arm of some jobs: those that have ended count, or all where none has; of those with equal seeds the newest,
    or the first where their results are equal."""
    ended = [job for job in jobs if job.finished]
    unfinished = [job for job in jobs if not job.finished] if ended else []
    of_seed: dict[int, list[LoadedJob]] = {}
    for job in ended or jobs:
        of_seed.setdefault(job.seed, []).append(job)
    counted = []
    for runs in of_seed.values():
        newest = max(runs, key=lambda job: job.began)
        counted.append(next(job for job in runs if equal_results(job, newest)))
    repeats = [job for runs in of_seed.values() for job in runs if all(job is not one for one in counted)]
    return Arm(label, counted, data[_data_key(jobs[0])], unfinished, repeats)


def equal_results(one: LoadedJob, other: LoadedJob) -> bool:
    """Whether two jobs have the same rounds, accuracies and costs."""
    first, second = (
        json.dumps([job.rounds_done, job.summary["accuracy"], *(BY_KEY[key].get(job) for key in sorted(_OF_ROUNDS))],
                   sort_keys=True) for job in (one, other)
    )  # fmt: skip
    return first == second


def _data_key(job: LoadedJob) -> DataKey:
    return job.data, job.digest


def _data_names(jobs: Sequence[LoadedJob]) -> dict[DataKey, str]:
    """Name and digest of data -> that name, with a number where other data have the name too."""
    digests: dict[str, list[str]] = {}  # by the name
    for job in jobs:
        alike = digests.setdefault(job.data, [])
        if job.digest not in alike:
            alike.append(job.digest)
    return {
        (name, digest): name if len(alike) == 1 else f"{name} ({number})"
        for name, alike in digests.items()
        for number, digest in enumerate(alike, 1)
    }


def _same(one: LoadedJob, other: LoadedJob) -> bool:
    """Whether two jobs differ only in their seed."""
    return _data_key(one) == _data_key(other) and not differences([one, other])


def differences(jobs: Sequence[LoadedJob]) -> dict[str, list[Any]]:
    """Settings in which jobs differ (:meth:`LoadedJob.same_setting`) -> each job's value, None where it has none."""
    keys = dict.fromkeys(key for job in jobs for key in job.settings)
    return {
        key: [job.settings.get(key) for job in jobs]
        for key in keys
        if not all(jobs[0].same_setting(job, key) for job in jobs)
    }


def best(arms: Sequence[Arm], figure: Column) -> set[int]:
    """Places of the arms with the best mean of a figure among those that have ended and compete with them
    (:meth:`Arm.comparable`); nobody's where nobody competes. Values that differ only in rounding are equal.

    Arms that diverged or only guess (:attr:`Arm.disqualified`) are never the best; others may be better than they are.
    """
    result: set[int] = set()
    conditions = [arm.comparable(figure) for arm in arms]
    for where in set(conditions):
        means = {index: mean for index, arm in enumerate(arms) if conditions[index] == where and not arm.state
                 for mean in [arm.mean(figure.key)] if mean is not None}  # fmt: skip
        valid = {index: mean for index, mean in means.items() if arms[index].disqualified is None}
        if not valid or figure.more_is_better is None:
            continue
        top = (max if figure.more_is_better else min)(valid.values())
        ties = {index for index, mean in valid.items() if equal_values(mean, top)}
        worse = (
            top > mean if figure.more_is_better else top < mean
            for mean in means.values()
            if not equal_values(mean, top)
        )
        if any(worse):
            result |= ties
    return result


def equal_values(one: float, other: float) -> bool:
    """Whether two values of a figure differ by no more than the rounding of their sums."""
    return math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)


def short(label: str) -> str:
    """A name that fits beside a plot: of a long one the begin and the end."""
    return label if len(label) <= _NAME else f"{label[: _NAME // 2]}…{label[-(_NAME - _NAME // 2 - 1) :]}"


def _labels(groups: Sequence[Sequence[LoadedJob]], data: Mapping[DataKey, str]) -> list[str]:
    """The method where that says which arm it is, also where plots cut it short, else with the data, else with what
    differs, else the name of its jobs."""
    names = [_jobs_name(group) for group in groups]
    firsts = [group[0] for group in groups]
    methods = [str(job.header["method"]) for job in firsts]
    tries = [methods, [f"{method}, {data[_data_key(job)]}" for method, job in zip(methods, firsts, strict=True)]]
    tries.append([_with_settings(job, firsts, data) or name for job, name in zip(firsts, names, strict=True)])
    cut = [[short(label) for label in labels] for labels in tries]
    labels = [
        next((labels[index] for labels, seen in zip(tries, cut, strict=True) if seen.count(seen[index]) == 1), name)
        for index, name in enumerate(names)
    ]
    shown = [short(label) for label in labels]
    return [
        label if shown.count(short(label)) == 1 else f"{number}: {label}"
        for number, label in enumerate(labels, start=1)
    ]


def _jobs_name(jobs: Sequence[LoadedJob]) -> str:
    """The name of an arm's jobs: of a sweep's without the seeds, where they have several, else that of the first."""
    return without_seeds([(job.name, job.seed) for job in jobs]) or jobs[0].name


def _with_settings(job: LoadedJob, jobs: Sequence[LoadedJob], names: Mapping[DataKey, str]) -> str | None:
    """The method, the data where they differ, and what differs within both; None where that is too much."""
    method = job.header["method"]
    rivals = [other for other in jobs if other.header["method"] == method]
    alike = [other for other in rivals if _data_key(other) == _data_key(job)]
    different = [key for key in differences(alike) if key != "data_dir"]
    if len(different) > _NAMED_SETTINGS:
        return None
    data = [names[_data_key(job)]] if len(alike) < len(rivals) else []
    settings = [f"{key.rpartition('.')[2]} {job.shown_setting(key)}" for key in different]
    return ", ".join([method, *data, *settings])


def pooled(arm: Arm) -> np.ndarray:
    """Accuracies of all tested clients, all seeds' together."""
    values = np.concatenate([job.client_accuracy for job in arm.jobs])
    return values[~np.isnan(values)]


def settings_table(arms: Sequence[Arm]) -> Mapping[str, list[str]]:
    """Settings in which arms differ -> how each arm has them. A method's own are told where two of its arms differ;
    where the data lie is not told."""
    jobs = [arm.jobs[0] for arm in arms]
    keys = [
        key
        for key, values in differences(jobs).items()
        if key != "data_dir"
        and ("." not in key or len({json.dumps(value, default=str) for value in values if value is not None}) > 1)
    ]
    plain = {key: [job.shown_setting(key) for job in jobs] for key in keys}
    return {
        key: words if len(set(words)) > 1 else [job.shown_setting(key, contents=True) for job in jobs]
        for key, words in plain.items()
    }
