"""What tells arms of a comparison apart, in words: their labels, and the settings in which they differ."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from fedscale_ext.core.seed_names import without_seeds
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.job.loading import DataKey, LoadedJob

_NAMED_SETTINGS = 3  # more different settings than these do not name an arm
_NAME = 44  # letters of a name in a plot


def differences(jobs: Sequence[LoadedJob]) -> dict[str, list[Any]]:
    """Settings in which jobs differ (:meth:`LoadedJob.same_setting`) -> each job's value, None where it has none."""
    keys = dict.fromkeys(key for job in jobs for key in job.settings)
    return {
        key: [job.settings.get(key) for job in jobs]
        for key in keys
        if not all(jobs[0].same_setting(job, key) for job in jobs)
    }


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


def data_names(jobs: Sequence[LoadedJob]) -> dict[DataKey, str]:
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


def short(label: str) -> str:
    """A name that fits beside a plot: of a long one the begin and the end."""
    return label if len(label) <= _NAME else f"{label[: _NAME // 2]}…{label[-(_NAME - _NAME // 2 - 1) :]}"


def arm_labels(groups: Sequence[Sequence[LoadedJob]], data: Mapping[DataKey, str]) -> list[str]:
    """The method where that says which arm it is, also where plots cut it short, else with the data, else with what
    differs, else the name of its jobs."""
    names = [_jobs_name(group) for group in groups]
    firsts = [group[0] for group in groups]
    methods = [job.header["method"] for job in firsts]
    tries = [methods, [f"{method}, {data[job.data_key]}" for method, job in zip(methods, firsts, strict=True)]]
    tries.append([label or name for label, name in zip(_with_settings(firsts, data), names, strict=True)])
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


def _with_settings(jobs: Sequence[LoadedJob], names: Mapping[DataKey, str]) -> list[str | None]:
    """For each job the method, the data where they differ, and what differs within both; None where that is too
    much."""
    alike: dict[str, dict[DataKey, list[LoadedJob]]] = {}  # by method and data
    for job in jobs:
        alike.setdefault(job.header["method"], {}).setdefault(job.data_key, []).append(job)
    different = {
        (method, data): [key for key in differences(group) if key != "data_dir"]
        for method, groups in alike.items()
        for data, group in groups.items()
    }
    labels: list[str | None] = []
    for job in jobs:
        method = job.header["method"]
        keys = different[method, job.data_key]
        data = [names[job.data_key]] if len(alike[method]) > 1 else []
        settings = [f"{key.rpartition('.')[2]} {job.shown_setting(key)}" for key in keys[:_NAMED_SETTINGS]]
        labels.append(None if len(keys) > _NAMED_SETTINGS else ", ".join([method, *data, *settings]))
    return labels
