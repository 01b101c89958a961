"""Sentences above a comparison: what does not compare, which jobs are left out, and which rows get no mark."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from fedscale_ext.config.job_config import set_aside
from fedscale_ext.config.keys import RESAMPLED
from fedscale_ext.core.errors import enumerated
from fedscale_ext.data.named_files import differing_files
from fedscale_ext.metrics.divergence import has_diverged
from fedscale_ext.report.compare.affordable import SETTINGS, strongest_ratio, weakest
from fedscale_ext.report.compare.arm_labels import differences
from fedscale_ext.report.compare.arms import Arm, with_fine_tuned
from fedscale_ext.report.compare.competing import OVERCOMMITMENT
from fedscale_ext.report.compare.grouping import equal_results
from fedscale_ext.report.job.loading import DEVICE_FILES, LoadedJob
from fedscale_ext.util.quantities import percent, quantity

_DATA_KEYS = ("data_seed", "test_split", "sample_shape", "data_map_file", "public_samples", "public_classes",
              "public_alpha")  # fmt: skip
"""Settings that decide which samples clients have (``config/data_settings.py``)."""
_OF_RULE = {"capacity_rule", "deadline_s", "capacity_spread", "capacity_model"}  # the others count by deadline only


def cautions(arms: Sequence[Arm]) -> list[str]:
    """List cautions for comparing these arms, a sentence each."""
    jobs = [job for arm in arms for job in (*arm.jobs, *arm.unfinished)]
    notes = []
    if len({job.digest for job in jobs}) > 1:
        notes.append("These jobs are on different data: their accuracies do not compare, and the best are marked "
                     f"within the same data only.{_why_data_differ(arms)}")  # fmt: skip
    if len(lengths := sorted({job.rounds_asked for job in jobs})) > 1:
        notes.append(f"These jobs have different numbers of rounds ({', '.join(map(str, lengths))}): what they reached "
                     "and what it cost compare in the curves, not in the table, which marks the best within the same "
                     "number of rounds only.")  # fmt: skip
    if different := differing_files(*(job.named_files for job in jobs)):
        names = ", ".join(different)
        notes.append(f"These jobs ran with different contents of {names}: jobs with the same contents share a row.")
    notes += [sentence for arm in arms for sentence in repeat_words(arm)]
    notes += _mask_words(arms)
    if any(_differ(jobs, key) for key in DEVICE_FILES):
        notes.append(f"These jobs ran on different devices ({_device_words(arms)}): costs and virtual time do not "
                     "compare, and the best are marked among the same devices only.")  # fmt: skip
    if sentence := _affords_words(arms):
        notes.append(sentence)
    if beyond := [_beyond_words(arm) for arm in arms if arm.beyond_capacity]:
        notes.append(f"Devices train models that they do not afford in {', '.join(beyond)}: rows marked beyond "
                     "capacity do not compete with those that keep to it.")  # fmt: skip
    if stopped := [_stopped_words(job) for job in jobs if job.finished and job.rounds_done < job.rounds_asked]:
        notes.append(f"Stopped early: {'; '.join(stopped)}. MACs, network and virtual time are marked among jobs that "
                     "did equally many rounds only.")  # fmt: skip
    if len({job.settings.get(OVERCOMMITMENT) for job in jobs}) > 1:
        notes.append("These jobs have different overcommitment. Clients that are too slow to count still download "
                     "models and train, which MACs and network leave out: costs are marked among equal values "
                     "only.")  # fmt: skip
    if sentence := _uncounted_words(arms):
        notes.append(sentence)
    if sentence := _disqualified_words(arms):
        notes.append(sentence)
    if early := [_early_words(job, job.state) for arm in arms for job in arm.jobs if not job.finished]:
        notes.append(f"Not finished: {', '.join(early)}.")
    apart = [
        _early_words(job, f"seed {job.seed}, {job.state}", f" of {arm.label}") for arm in arms for job in arm.unfinished
    ]
    if apart:
        notes.append(f"Not finished, and not in the figures of its row: {', '.join(apart)}.")
    if failed := [f"{job.name} ({job.failure})" for job in jobs if job.finished and job.failure]:
        notes.append(f"Failed with its results already written: {', '.join(failed)}.")
    if len({frozenset(arm.seeds) for arm in arms}) > 1:
        notes.append("The rows have different seeds: differences between rows are also differences between seeds.")
    return notes


def _differ(jobs: Sequence[LoadedJob], key: str) -> bool:
    """Whether two of the jobs have a setting differently; those that have it in one way count once."""
    distinct = {(job.compared_by(key), job.compared_value(key), repr(job.settings.get(key))): job for job in jobs}
    return any(not one.same_setting(other, key) for one, other in combinations(distinct.values(), 2))


def _beyond_words(arm: Arm) -> str:
    return f"{arm.label} ({arm.beyond_capacity:,} of {int(arm.jobs[0].header['num_clients']):,} clients)"


def _early_words(job: LoadedJob, how_far: str, of: str = "") -> str:
    """A job that has not ended, how far it is, and why it goes no further where that is known."""
    why = job.failure or ("its training diverged" if has_diverged(job.records) else "")
    return f"{job.name}{of} ({'; '.join(filter(None, (how_far, why)))})"


def repeat_words(arm: Arm) -> list[str]:
    """A sentence for each job that an arm leaves out because another one has its seed."""
    counted = {job.seed: job for job in arm.jobs}
    return [
        f"{job.name} is left out of {arm.label}: it repeats {other.name} (seed {job.seed}), with equal results."
        if equal_results(job, other)
        else f"{job.name} is left out of {arm.label}: {other.name} has the same settings and seed {job.seed} and other "
        "results, and is newer; versions of the code may differ."
        for job in arm.repeats
        for other in [counted[job.seed]]
    ]


def _mask_words(arms: Sequence[Arm]) -> list[str]:
    """A sentence on rows whose tests mask logits; or nothing."""
    masked = [arm for arm in arms if arm.masked]
    tested = [arm for arm in arms if any(job.summary["accuracy"] for job in arm.jobs)]
    if not masked:
        return []
    reached = []
    for arm in masked:
        plain = [job.summary["accuracy"]["unmasked"]["mean"] for job in arm.jobs if job.masked]
        if None not in plain:
            reached.append(f"{arm.label} {percent(float(np.mean(plain)))}")
    without = f" Without the mask: {'; '.join(reached)}." if reached else ""
    if all(arm.masked for arm in tested):
        return [f"Tests mask the logits of classes that a client lacks (mask_test).{without}"]
    return [f"Tests of {'; '.join(arm.label for arm in masked)} mask the logits of classes that a client lacks, those "
            "of the other rows do not: their accuracies do not compare, and the best are marked within the same kind "
            f"of test only.{without}"]  # fmt: skip


def _uncounted_words(arms: Sequence[Arm]) -> str:
    """A sentence on arms with updates that failed or were refused, where others have none; or nothing."""
    failed = [f"{arm.label} {arm.uncounted:,}" for arm in arms if arm.uncounted]
    if not failed or len(failed) == len(arms):
        return ""
    return (f"Updates failed or were refused: {'; '.join(failed)}. What these clients trained and sent is not in MACs "
            "and network: both are marked apart in rows with and without many such updates.")  # fmt: skip


def _stopped_words(job: LoadedJob) -> str:
    reason = f" ({job.summary['stopped']})" if job.summary.get("stopped") else ""
    return f"{job.name} after round {job.rounds_done} of {job.rounds_asked}{reason}"


def _device_words(arms: Sequence[Arm]) -> str:
    """The files of devices of each arm, by the names that settings give them; those of one name by contents, too."""
    names, full = (
        [", ".join(arm.jobs[0].shown_setting(key, contents=contents) for key in DEVICE_FILES
                   if arm.jobs[0].settings.get(key)) or RESAMPLED for arm in arms]
        for contents in (False, True)
    )  # fmt: skip
    words = full if len(set(names)) < len(set(full)) else names
    return "; ".join(f"{arm.label}: {text}" for arm, text in zip(arms, words, strict=True))


def _affords_words(arms: Sequence[Arm]) -> str:
    """A sentence on what the weakest and the strongest client of each arm afford, why and by how much that differs;
    nothing where devices afford the same."""
    known = [arm for arm in arms if arm.jobs[0].affords is not None]
    if len({arm.afford for arm in known}) < 2:
        return ""
    firsts = [arm.jobs[0] for arm in known]
    ranges = [f"{arm.label} {quantity(job.affords[0])} to {quantity(job.affords[1])}"
              for arm, job in zip(known, firsts, strict=True) if job.affords is not None]  # fmt: skip
    ratio = f"{strongest_ratio(firsts):.3g}"
    strongest = "" if ratio == "1" else f"; the strongest client {ratio} times as many"
    why, remedy = _why_devices_afford_more(known)
    return (f"The same devices afford models of different size ({'; '.join(ranges)} MACs per sample{strongest}), as "
            f"{why}: costs are marked among rows whose devices afford the same only. {remedy}, rows compare."
            )  # fmt: skip


def _why_devices_afford_more(arms: Sequence[Arm]) -> tuple[str, str]:
    """Why devices do not afford the same in these arms, and what makes them do so."""
    firsts = [arm.jobs[0] for arm in arms]
    different = differences(firsts)
    settings = [key for key in SETTINGS if key in different]
    if len({weakest(arm.jobs) for arm in arms}) > 1 and "deadline_s" not in settings:
        return "the methods' base models differ", "With the same capacity_model"
    if settings:
        named = f"{', '.join(settings)} {'differs' if len(settings) == 1 else 'differ'}"
        return named, "With equal values" if set(settings) & _OF_RULE else "With capacity_rule: computation"
    if firsts[0].settings.get("capacity_model") is not None:
        return "earlier versions counted each method's own traffic under capacity_model", "Run anew"
    return ("the time for what each method itself sends counts",
            "With the same capacity_model, or with capacity_rule: computation")  # fmt: skip


def _why_data_differ(arms: Sequence[Arm]) -> str:
    """A sentence on what arms with different samples set aside for the server, or on data of one name; or nothing."""
    samples = {arm.label: set_aside(arm.jobs[0].header["config"]) for arm in arms}
    sentences = []
    if len(set(samples.values())) > 1:
        counts = ", ".join(f"{label} {count:,}" if count else f"{label} none" for label, count in samples.items())
        sentences.append(f" They set aside different numbers of training samples as public data: {counts}.")
    # name of data and what was set aside -> what tells those that have both apart -> a job
    alike: dict[tuple[str, int], dict[str, LoadedJob]] = {}
    for arm in arms:
        key = arm.jobs[0].data, samples[arm.label]
        alike.setdefault(key, {})[arm.data] = arm.jobs[0]
    sentences += [
        f" The names of {_listed_data(data)} are the same, samples or clients are not: {_different_data(data)} differ."
        for data in alike.values()
        if len(data) > 1
    ]
    return "".join(sentences)


def _different_data(data: Mapping[str, LoadedJob]) -> str:
    """The settings of data in which jobs differ; files where none does."""
    different = [key for key in differences(list(data.values())) if key in _DATA_KEYS]
    return ", ".join(different) or "files"


def _listed_data(data: Mapping[str, LoadedJob]) -> str:
    """Names of data, each with a job on them, and their numbers of clients and classes where these differ."""
    counts: dict[str, list[int | None]] = {
        "clients": [job.header["num_clients"] for job in data.values()],
        "classes": [job.num_classes for job in data.values()],
    }
    different = {what: each for what, each in counts.items() if len(set(each)) > 1}
    described = []
    for index, name in enumerate(data):
        known = [f"{each[index]:,} {what}" for what, each in different.items() if each[index] is not None]
        described.append(f"{name} ({', '.join(known)})" if known else name)
    return enumerated(described)


def _disqualified_words(arms: Sequence[Arm]) -> str:
    """A sentence on the rows that get no mark, among those of a comparison of several; or nothing."""
    rows = [arm for _, arm in with_fine_tuned(arms)]
    reasons = [f"{arm.label} ({arm.disqualified})" for arm in rows if not arm.state and arm.disqualified]
    return f"Not marked as the best in any column: {'; '.join(reasons)}." if reasons and len(rows) > 1 else ""
