"""Populations of any size drawn from the published marginals of FedScale's traces (marginals.json).

Computation and communication are drawn independently, as they are in the trace (Spearman 0.004).
"""

import json
from importlib.resources import files
from typing import Any

import numpy as np

from fedscale_ext.core.streams import stream
from fedscale_ext.population.traces.columns import AvailabilityTrace, CapacityTrace

DAYS = 2  # FedScale's availability repeats after days; two of them contain a midnight
HOURLY_REDRAW = 0.25  # assumption: how long clients stay online is not published
_BLOCK = 8192  # clients drawn at once: bounds the memory, and fixes which stream a client reads


def marginals() -> dict[str, Any]:
    """Return the published figures; device_traces/README.md explains each."""
    text = files("fedscale_ext.population").joinpath("marginals.json").read_text(encoding="utf-8")
    return json.loads(text)


def resample_capacity(n: int, seed: int) -> CapacityTrace:
    """Draw ``n`` devices with ids 1..n.

    Computation is drawn by the multiplicities of its 72 values. Communication is drawn by interpolating its published
    quantiles, linear in the logarithm.
    """
    figures = marginals()
    rng = stream(seed, "devices")
    table = figures["computation_ms_per_sample"]
    values = np.array([float(value) for value in table])
    computation = rng.choice(np.repeat(values, list(table.values())), size=n)
    quantiles = figures["communication_kbps_quantiles"]
    levels = np.array([float(level) / 100.0 for level in quantiles])
    communication = np.exp(np.interp(rng.random(n), levels, np.log(list(quantiles.values()))))
    return CapacityTrace(np.arange(1, n + 1), computation, communication, resampled=True)


def resample_availability(n: int, seed: int) -> AvailabilityTrace:
    """Draw online intervals over 48 h for ``n`` clients (ids 1..n).

    A client holds a uniform number u and is online while u is below the online fraction of the time, which is
    interpolated between the published ones of hours; each hour it draws a new u with probability HOURLY_REDRAW. So the
    expected online fraction of an hour is about the published one, whatever HOURLY_REDRAW is: interpolation smooths
    it by up to 0.82 percentage points. A client's hours begin at its own minute, and its intervals depend on the seed
    and its id only, not on ``n``.
    """
    fractions = np.array(marginals()["online_fraction_by_hour"])
    sizes, active, inactive = [], [], []
    for block in range(0, n, _BLOCK):
        rng = stream(seed, block, "resampled availability")
        online, edges = _online_slots(fractions, rng)
        online, edges = online[: n - block], edges[: n - block]
        change = np.diff(np.pad(online, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        active.append(edges[change == 1])
        inactive.append(edges[change == -1])
        sizes.append((change == 1).sum(axis=1))
    return AvailabilityTrace(
        np.arange(1, n + 1),
        np.concatenate(([0], *sizes)).cumsum(),
        np.concatenate(([], *active)),
        np.concatenate(([], *inactive)),
        np.full(n, DAYS * 86400.0),
        resampled=True,
    )


def _online_slots(fractions: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return one block's online slots, bool [_BLOCK, s], and their edges in seconds, [_BLOCK, s + 1]."""
    hours = 24 * DAYS
    begin = np.arange(hours + 1) + rng.random((_BLOCK, 1)) - 1  # the client's hours, begun at its minute
    edges = np.pad(np.clip(begin, 0, hours), ((0, 0), (0, 1)), constant_values=hours)
    middle = (edges[:, :-1] + edges[:, 1:]) / 2
    centres = np.arange(-1, hours + 1)  # one hour more at either end, for the clock goes round
    chance = np.interp(middle, centres + 0.5, fractions[centres % 24])
    fresh = rng.random(middle.shape) < HOURLY_REDRAW
    fresh[:, 0] = True
    since = np.maximum.accumulate(np.where(fresh, np.arange(hours + 1), 0), axis=1)
    level = np.take_along_axis(rng.random(middle.shape), since, axis=1)
    return level < chance, np.round(3600 * edges)
