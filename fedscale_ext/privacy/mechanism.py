"""The Gaussian mechanism on sums of clipped changes, the clipping factor, and the norm that follows a quantile.

A round releases every model's sum of changes. Where the norm adapts, it also releases the number of unclipped changes.
Each client is part of one model's sum only. One client thus alters a release by one clipped vector and half a bit.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

Draws = Callable[[str], np.random.Generator]  # the stream of noise of a tensor, by its name

_STEP = 0.2  # eta_C of Andrew et al. (2021), Algorithm 1
_BIT_NOISE = 1 / 20  # their sigma_b in participants


def clip_factor(norm: float, limit: float) -> float:
    """Return the factor that scales a change of this norm down to ``limit``; ``tasks/reduction.py`` applies it."""
    return 1.0 if norm <= limit else limit / norm


def bit_noise(noise_multiplier: float, participants: int) -> float:
    """Return the standard deviation of the noise on the number of unclipped clients.

    It is a twentieth of the participants, as in Andrew et al. (2021), but never below the noise multiplier. In small
    rounds, too, most of the noise that is accounted for then shields the changes.
    """
    return max(_BIT_NOISE * participants, noise_multiplier)


def change_noise(noise_multiplier: float, bits: float) -> float:
    """Return z_Delta of Andrew et al. (2021), Theorem 1: the noise multiplier for the changes.

    With it, both releases together cost what one release with ``noise_multiplier`` would.

    Args:
        noise_multiplier: The multiplier of the round as a whole.
        bits: Standard deviation of the noise on the number of unclipped clients, above ``noise_multiplier / 2``.

    """
    return (noise_multiplier**-2 - (2 * bits) ** -2) ** -0.5


def adapted_norm(clip_norm: float, unclipped_share: float, quantile: float) -> float:
    """Return the clipping norm of the next round (Andrew et al. 2021, Algorithm 1).

    Args:
        clip_norm: The norm of this round.
        unclipped_share: Share of the clients whose change was within it, noised, so that it may leave [0, 1].
        quantile: Target share. The norm shrinks when ``unclipped_share`` is above it, and grows otherwise.

    """
    return clip_norm * math.exp(-_STEP * (unclipped_share - quantile))


def noised_mean(
    start: Mapping[str, Tensor], total: Mapping[str, Tensor] | None, deviation: float, count: float, draws: Draws
) -> dict[str, Tensor]:
    """Return ``start + (total + N(0, deviation^2)) / count`` in the dtypes of ``start``.

    Integer tensors stay unchanged. BatchNorm's variances are clamped at zero afterwards. This costs no privacy, because
    it reads only the noised values.

    Args:
        start: The state from which the clients trained.
        total: Sum of the clipped changes, float64, by tensor name; None stands for a sum of zeros.
        deviation: Standard deviation of the noise on the sum.
        count: Divisor of the noised sum.
        draws: The noise stream of a tensor, by its name.

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
