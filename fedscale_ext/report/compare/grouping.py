"""Group jobs that differ only in their seed into the arms of a comparison."""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from fedscale_ext.report.compare import affordable
from fedscale_ext.report.compare.arm_labels import arm_labels, data_names
from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.compare.columns import BY_KEY
from fedscale_ext.report.job.loading import DataKey, LoadedJob

_COSTS = ("macs", "network", "time")  # keys of the costs of which equal jobs have the same


def arms_of(jobs: Sequence[LoadedJob]) -> list[Arm]:
    """Group jobs that differ only in their seed, in the order of ``jobs``.

    Files that settings name count with their contents, wherever they lie. Jobs of earlier versions did not record
    these: such a job joins the first arm whose settings name the same paths.
    """
    first = {id(job): index for index, job in reversed(list(enumerate(jobs)))}
    arms = sorted(_alike(jobs), key=lambda group: first[id(group[0])])
    data = data_names(jobs)
    named = [_arm(label, group, data) for label, group in zip(arm_labels(arms, data), arms, strict=True)]
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
    return Arm(label, counted, data[jobs[0].data_key], unfinished, repeats)


def _alike(jobs: Sequence[LoadedJob]) -> list[list[LoadedJob]]:
    """Group jobs that differ only in their seed, without comparing each with each.

    Most settings are compared by one thing in all jobs, and their values split the jobs. Within a part, other settings
    may be compared by one thing, too. Jobs are compared in pairs by the settings that remain.
    """
    keys = dict.fromkeys(key for job in jobs for key in job.settings if key != "data_dir")  # the digest tells the data
    mixed = [key for key in keys if len({job.compared_by(key) for job in jobs}) > 1]
    alike: dict[tuple[Hashable, ...], list[LoadedJob]] = {}
    for job in jobs:
        values = (job.compared_value(key) for key in keys if key not in mixed)
        alike.setdefault((job.data_key, *values), []).append(job)
    if len(alike) > 1:
        return [group for part in alike.values() for group in _alike(part)]
    return _alike_in_pairs(jobs, mixed)


def _alike_in_pairs(jobs: Sequence[LoadedJob], keys: Sequence[str]) -> list[list[LoadedJob]]:
    """Group jobs by some of their settings: each joins the first group with all of whose jobs it shares them."""
    groups: list[list[LoadedJob]] = []
    for job in jobs:
        for group in groups:
            if all(job.same_setting(other, key) for key in keys for other in group):
                group.append(job)
                break
        else:
            groups.append([job])
    return groups


def equal_results(one: LoadedJob, other: LoadedJob) -> bool:
    """Whether two jobs have the same rounds, accuracies and costs."""
    first, second = (
        json.dumps([job.rounds_done, job.summary["accuracy"], *(BY_KEY[key].get(job) for key in _COSTS)],
                   sort_keys=True) for job in (one, other)
    )  # fmt: skip
    return first == second
