"""Verify a job: its records by their chain, and rounds drawn at random by computing them again."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedscale_ext.api.replay import TOLERANCE, differing, far_apart, replay
from fedscale_ext.api.run_checks import Check, RecordedRun
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.job_data import open_recorded_data
from fedscale_ext.metrics.job_folder.header import JobHeader


def verify(
    run: RecordedRun,
    *,
    rounds: int | None,
    seed: int,
    data_dir: str | None = None,
    before_replay: Callable[[int], None] = lambda round: None,
) -> Iterator[Check]:
    """Check a job.

    Args:
        run: Its folder.
        rounds: How many rounds are computed again; None: all that can be, 0: none.
        seed: Of the draw of these rounds.
        data_dir: Where the data are, if not where the job had them.
        before_replay: Called with the number of a round before it is computed.

    Yields:
        A row for each check, as soon as it is done.

    """
    yield from run.checks()
    possible = replayable(run)
    drawn = possible if rounds is None else draw(possible, rounds, seed)
    if drawn and (why := _data_fault(run, data_dir)):
        yield Check("replay", "not checked", why)
        return
    for round in drawn:
        before_replay(round)
        yield _replayed(run, round, data_dir)
    if left := len(possible) - len(drawn):
        yield Check("not drawn", "not checked", f"{left} more rounds that could be computed again")
    if _noise_is_secret(run) and run.lines:
        yield Check("round 1", "not checked", "dp_noise is secret, and no checkpoint before the round has its key")
    if without := [line["round"] for line in run.lines[_noise_is_secret(run) :] if line["round"] not in possible]:
        yield Check(
            "cannot replay", "not checked", f"rounds {spans(without)}: no checkpoint of the round before them is there"
        )


def replayable(run: RecordedRun) -> list[int]:
    """Return the rounds that can be computed again: the first, and those that follow a checkpoint which is there.

    Secret noise is drawn with a key that only checkpoints have, so its first round cannot.
    """
    first = [] if _noise_is_secret(run) else [1]
    return [*first, *(round + 1 for round in run.checkpoints if 1 <= round < len(run.lines))]


def draw(rounds: Sequence[int], count: int, seed: int) -> list[int]:
    """Draw ``count`` of the rounds, or all where there are fewer; in rising order."""
    order = np.random.default_rng(seed).permutation(len(rounds))
    return sorted(rounds[index] for index in order[:count])


def spans(numbers: Sequence[int]) -> str:
    """Rising numbers in words: ``2-17, 19``."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ends)


def _noise_is_secret(run: RecordedRun) -> bool:
    """Tell whether the job's differential privacy draws noise that nobody can draw again."""
    settings = run.job.header["config"]
    return settings.get("dp_noise_multiplier") is not None and settings.get("dp_noise") == "secret"


def _data_fault(run: RecordedRun, data_dir: str | None) -> str | None:
    """Why rounds cannot be computed again for want of the data, or None."""
    settings = {**run.job.header["config"], **({} if data_dir is None else {"data_dir": data_dir})}
    where = f"data_dir {settings.get('data_dir')}"
    try:
        data = open_recorded_data(settings)
    except UserError as error:
        return f"no round: the data cannot be read ({error})"
    except (KeyError, TypeError, ValueError):
        return "no round: header.json does not say what the data are"
    return None if data.digest == run.job.digest else f"no round: {where} holds other data than those of the job"


def _replayed(run: RecordedRun, round: int, data_dir: str | None) -> Check:
    """Compute a round again and compare it.

    A round in the midst of a job may have been the last one, before the job was continued with more. It was tested as
    such then, which can change the state of models. Earlier releases could also end a job whose last round was not
    tested as such. So a round that does not fit is computed in the other way, too.
    """
    check, asked = _replay_check(run, round, data_dir), run.job.rounds_asked
    if check.outcome != "does not fit" or (round < asked and run.lines[round - 1].get("evaluation") is None):
        return check
    other = _replay_check(run, round, data_dir, rounds=round if round < asked else round + 1)
    return other if other.outcome == "fits" else check


def _replay_check(run: RecordedRun, round: int, data_dir: str | None, rounds: int | None = None) -> Check:
    """Compute a round again, in a job of ``rounds`` rounds (by default, as many as it had), and compare it."""
    what, line = f"round {round}", run.lines[round - 1]
    try:
        with tempfile.TemporaryDirectory(prefix="fedscale-verify-") as scratch:
            replayed, header = replay(run.folder, run.job.header["config"], line, Path(scratch), data_dir, rounds)
    except UserError as error:
        return Check(what, "not checked", f"it cannot be computed here: {error}")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:  # a folder may come from anybody
        return Check(what, "does not fit", f"the job does not go on from there: {type(error).__name__}: {error}")
    different = differing(line, replayed)
    if not different:
        return Check(what, "fits", "computed again, equal bit for bit")
    others = _other_circumstances(run.job.header, header, line, replayed)
    if not others:
        return Check(what, "does not fit", f"computed again, it differs in {', '.join(different)}")
    bits = f"bits differ, as they may with another {' and '.join(others)}"
    if apart := far_apart(line, replayed):
        return Check(what, "does not fit", f"{bits}; but so do {', '.join(apart)} by more than {TOLERANCE}")
    return Check(what, "fits", f"{bits}; figures are equal within {TOLERANCE}, or {100 * TOLERANCE:g} % of them")


def _other_circumstances(
    header: JobHeader, here: JobHeader, line: Mapping[str, Any], replayed: Mapping[str, Any]
) -> list[str]:
    """What is another here than where the job ran, of that which decides how numbers are rounded."""
    pairs = {
        "processor": (header.get("device"), here["device"]),
        "torch": (header["versions"].get("torch"), here["versions"]["torch"]),
        "program": (line["digests"].get("code"), replayed["digests"]["code"]),
    }
    return [name for name, (there, now) in pairs.items() if there != now]
