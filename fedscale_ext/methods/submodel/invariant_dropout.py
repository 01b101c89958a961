"""The mathematics of FLuID (Wang et al., NeurIPS 2023): which neurons stay, how far is invariant, who is slow.

A neuron is a channel of a group of the layout: one row of every tensor that produces the group (weights into it, bias,
BatchNorm's scale and shift) and one column of every tensor that reads it. Groups whose channels are added up in
residual connections are one group, so that their layers keep the same channels.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedscale_ext.core.parts import part_of
from fedscale_ext.method import ModelSpec, State, models
from fedscale_ext.models.resizing import FIXED


def relative_change(before: Tensor, after: Tensor) -> Tensor:
    """|w' - w| / |w| of each weight: 0 for one that did not move, infinite for one that left zero."""
    change = (after - before).abs_() / before.abs()
    return change.nan_to_num_(nan=0.0, posinf=float("inf"))  # 0 / 0 is a weight that stayed at zero


def neuron_changes(spec: ModelSpec, before: State, after: State) -> dict[str, np.ndarray]:
    """Largest relative change among each neuron's weights, float64 [channels] by group.

    The paper's test "all of a neuron's weights changed by at most th |w|" is ``changes <= th``.
    """
    layout = models.layout(spec)
    changes = {
        group: torch.zeros(width, dtype=torch.float64)
        for group, width in models.group_widths(spec).items()
        if group not in FIXED
    }
    for name in models.parameter_names(spec):
        change = relative_change(before[name], after[name])
        for dim, axis in enumerate(layout[name]):
            if axis is not None and axis.group in changes:
                group_changes, others = changes[axis.group], [other for other in range(change.dim()) if other != dim]
                largest = change.amax(others) if others else change
                torch.maximum(group_changes, largest.view(len(group_changes), -1).amax(1).double(), out=group_changes)
    return {group: change.numpy() for group, change in changes.items()}


def least_change(changes: np.ndarray) -> float | None:
    """Smallest change of a neuron, each neuron's being its largest over clients.

    Args:
        changes: Changes of a group, float64 [clients, channels].

    Returns:
        The change; None where every neuron has a weight that left zero.

    """
    largest = changes.max(axis=0)
    largest = largest[np.isfinite(largest)]
    return float(largest.min()) if len(largest) else None


def invariant(changes: np.ndarray, threshold: float, vote: float) -> np.ndarray:
    """Invariant neurons, bool [channels]: those whose change is small for enough clients.

    Args:
        changes: Changes of a group, float64 [clients, channels].
        threshold: Largest change that counts as small.
        vote: Share of clients for whom it must be small.

    Returns:
        bool [channels].

    """
    return (changes <= threshold).sum(axis=0) >= part_of(vote, len(changes))


def next_threshold(threshold: float, observed: int, least: float | None, few: bool, step: float, every: int) -> float:
    """th_l after another observed round.

    It is the least change at first, then its mean with the next one. Later it grows while too few neurons are
    invariant.

    Args:
        threshold: th_l before.
        observed: Number of this observed round, from 1.
        least: Least change of the round, if there is any.
        few: Whether there are too few invariant neurons.
        step: By how much th_l grows.
        every: Number of observed rounds between two steps.

    Returns:
        th_l.

    """
    if observed <= 2:
        if least is None:
            return threshold
        return least if observed == 1 else (threshold + least) / 2
    return threshold + step if few and observed % every == 0 else threshold


def remaining_channels(
    widths: Mapping[str, int],
    channels: Mapping[str, int],
    before: Mapping[str, np.ndarray],
    now: Mapping[str, np.ndarray],
    generator: np.random.Generator,
) -> dict[str, Tensor]:
    """The channels that stay, ascending.

    Dropped are first the neurons that were invariant both ``before`` and ``now``, then those that are now, then others,
    at random among their likes. Groups without figures so far are dropped at random. In the public code, the first are
    those that were dropped last and are invariant now.

    Args:
        widths: Number of channels that stay, by group.
        channels: Number of channels of the full model, by group.
        before: Invariant neurons one observed round earlier, bool [channels] by group.
        now: Those of the newest observed round.
        generator: Draws the order of channels that are alike.

    Returns:
        int64 [width] by group.

    """
    result = {}
    for group, width in widths.items():
        order = generator.permutation(channels[group])
        if group in now:
            due = now[group].astype(np.int64) + (now[group] & before[group])
            order = order[np.argsort(-due[order], kind="stable")]
        result[group] = torch.from_numpy(np.sort(order[channels[group] - width :]))
    return result


def affordable_rates(capacity: np.ndarray, full: float, macs: Mapping[float, float]) -> np.ndarray:
    """The rate that each client affords, float64 [clients].

    Args:
        capacity: MACs per sample that clients afford, [clients].
        full: MACs of the full model.
        macs: MACs of each submodel, by rate.

    Returns:
        1 for those who afford the full model, else the largest rate that fits; the smallest where none does.

    """
    rates = np.full(len(capacity), min(macs))
    for rate, needed in sorted(macs.items()):
        rates[capacity >= needed] = rate
    rates[capacity >= full] = 1.0
    return rates


def timed_rates(
    seconds: np.ndarray, slow_before: np.ndarray, rates: Sequence[float], share: float, hysteresis: float
) -> np.ndarray:
    """The rate nearest to T_next / T of each straggler, 1 for the others.

    Stragglers are those of the slowest ``share`` (at least one participant, never all) that take longer than the
    slowest of the others, T_next.

    Args:
        seconds: Time of each participant on the full model, [participants].
        slow_before: Whether each was a straggler before, bool [participants].
        rates: Rates of submodels.
        share: Share of the participants that may be stragglers.
        hysteresis: How many times T_next a participant must take to become a straggler.

    Returns:
        float64 [participants].

    """
    chosen = np.ones(len(seconds))
    if len(seconds) < 2:
        return chosen
    order = np.argsort(seconds, kind="stable")
    slow = order[len(order) - min(max(1, int(part_of(share, len(order)))), len(order) - 1) :]
    target = seconds[order[len(order) - len(slow) - 1]]
    choices = np.array(sorted(rates, reverse=True))
    for index in slow:
        if seconds[index] > target * (1.0 if slow_before[index] else hysteresis):
            chosen[index] = choices[np.abs(choices - target / seconds[index]).argmin()]
    return chosen
