"""The Gaussian mechanism on sums of clipped changes, and the norm that follows a quantile.

A round releases every model's sum of changes and, where the norm adapts, how many were within it. A
client is in one model's sum, so all of it together changes by one clipped vector, and by half a bit.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

Draws = Callable[[str], np.random.Generator]  # the stream of noise of a tensor, by its name

_STEP = 0.2  # eta_C of Andrew et al. (2021), Algorithm 1
_BIT_NOISE = 1 / 20  # their sigma_b in participants


def bit_noise(noise_multiplier: float, participants: int) -> float:
    """Standard deviation of the noise on the number of clients within the norm.

    A twentieth of the participants, as Andrew et al. (2021) have it; not below the noise multiplier, so
    that in small rounds, too, most of the noise that is accounted for shields the changes.
    """
    return max(_BIT_NOISE * participants, noise_multiplier)


def change_noise(noise_multiplier: float, bits: float) -> float:
    """z_Delta of Andrew et al. (2021), Theorem 1: the multiplier for the changes, so that both releases
    together cost what one with ``noise_multiplier`` would. ``bits`` above noise_multiplier / 2."""
    return (noise_multiplier**-2 - (2 * bits) ** -2) ** -0.5


def adapted_norm(norm: float, within: float, quantile: float) -> float:
    """The next norm: smaller where a share ``within`` above ``quantile`` of the changes was within this one."""
    return norm * math.exp(-_STEP * (within - quantile))


def noised_mean(
    start: Mapping[str, Tensor], total: Mapping[str, Tensor] | None, deviation: float, count: float, draws: Draws
) -> dict[str, Tensor]:
    """start + (total + N(0, deviation^2)) / count, in the dtypes of ``start``; no ``total`` is a sum of zero.

    Whole numbers stay as they are. BatchNorm's variances are kept from below zero afterwards, which
    costs nothing, as it sees the noised values alone.
    """
    mean = {}
    for name, tensor in start.items():
        if not tensor.is_floating_point():
            mean[name] = tensor
            continue
        value = torch.from_numpy(np.asarray(draws(name).standard_normal(tuple(tensor.shape))))
        value.mul_(deviation)
        if total is not None:
            value.add_(total[name])
        value.div_(count).add_(tensor)
        mean[name] = (value.clamp_(min=0.0) if name.endswith("running_var") else value).to(tensor.dtype)
    return mean
