"""RandAugment (Cubuk et al. 2020): two of fourteen operations, drawn for each picture, all of one magnitude.

Operations and magnitudes (9 of 30) are those of torchvision's RandAugment(2, 9), which FedorAS trains CIFAR with.
Shears are about a picture's centre, as they were in torchvision's first version; today's are about its top left corner.
A whole batch is changed at once: each operation in turn runs on the pictures that drew it. Values stay whole numbers
from 0 to 255. Pixels from beyond the edges are black.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

OPERATIONS = 2  # for each picture
_MAGNITUDE = 9 / 30  # share of the largest
_SHEAR, _SHIFT, _DEGREES = 0.3 * _MAGNITUDE, 150 / 331 * _MAGNITUDE, 30 * _MAGNITUDE  # shift: of the picture's side
_ENHANCE, _BITS, _SOLARIZE = 0.9 * _MAGNITUDE, 8 - round(4 * _MAGNITUDE), 255 * (1 - _MAGNITUDE)
_GREY = (0.2989, 0.587, 0.114)

Change = Callable[[Tensor, Tensor], Tensor]  # pictures [n, C, H, W] of 0..255, signs [n] -> pictures


def _moved(x: Tensor, matrix: Tensor) -> Tensor:
    """Sample pictures [n, C, H, W] at the positions of affine matrices [n, 2, 3], in units of half a side."""
    grid = functional.affine_grid(matrix.to(x.dtype), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def _affine(entry: tuple[int, int], amount: Callable[[Tensor], float]) -> Change:
    def change(x: Tensor, sign: Tensor) -> Tensor:
        matrix = torch.eye(2, 3, dtype=x.dtype, device=x.device).repeat(len(x), 1, 1)
        matrix[:, entry[0], entry[1]] += sign * amount(x)
        return _moved(x, matrix)

    return change


def _rotated(x: Tensor, sign: Tensor) -> Tensor:
    angle = sign * (_DEGREES * torch.pi / 180)
    ratio = x.shape[2] / x.shape[3]
    rows = [torch.stack([angle.cos(), -angle.sin() * ratio], 1), torch.stack([angle.sin() / ratio, angle.cos()], 1)]
    return _moved(x, torch.cat([torch.stack(rows, 1), angle.new_zeros(len(x), 2, 1)], 2))


def _blended(other: Callable[[Tensor], Tensor]) -> Change:
    """Return the change that blends a picture with ``other(picture)``, away from it or towards it by sign."""

    def change(x: Tensor, sign: Tensor) -> Tensor:
        factor = (1 + _ENHANCE * sign).view(-1, 1, 1, 1)
        return factor * x + (1 - factor) * other(x)

    return change


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x
    weights = torch.tensor(_GREY, dtype=x.dtype, device=x.device).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True).floor().expand_as(x)


def _smooth(x: Tensor) -> Tensor:
    kernel = torch.ones(3, 3, dtype=x.dtype, device=x.device)
    kernel[1, 1] = 5
    inner = functional.conv2d(x, (kernel / 13).expand(x.shape[1], 1, 3, 3), groups=x.shape[1])
    result = x.clone()
    result[:, :, 1:-1, 1:-1] = inner.round()
    return result


def _auto_contrast(x: Tensor, sign: Tensor) -> Tensor:
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) * (255 / (high - low).clamp(min=1)), x)


def _equalized(x: Tensor, sign: Tensor) -> Tensor:
    """Equalise the histogram of each channel."""
    values = x.round().long().clamp(0, 255).flatten(2).flatten(0, 1)  # [n C, H W]
    counts = torch.zeros(len(values), 256, dtype=torch.int64, device=x.device)
    counts.scatter_add_(1, values, torch.ones_like(values))
    step = (values.shape[1] - counts.gather(1, values.amax(1, keepdim=True))) // 255
    table = (counts.cumsum(1) + step // 2) // step.clamp(min=1)
    table = functional.pad(table, (1, -1)).clamp(0, 255)
    spread = torch.where(step > 0, table.gather(1, values), values)
    return spread.view(x.shape).to(x.dtype)


CHANGES: tuple[Change, ...] = (
    lambda x, sign: x,
    _affine((0, 1), lambda x: _SHEAR * x.shape[2] / x.shape[3]),
    _affine((1, 0), lambda x: _SHEAR * x.shape[3] / x.shape[2]),
    _affine((0, 2), lambda x: 2 * int(_SHIFT * x.shape[3]) / x.shape[3]),
    _affine((1, 2), lambda x: 2 * int(_SHIFT * x.shape[2]) / x.shape[2]),
    _rotated,
    _blended(torch.zeros_like),
    _blended(_grey),
    _blended(lambda x: _grey(x).mean((1, 2, 3), keepdim=True)),
    _blended(_smooth),
    lambda x, sign: (x / 2 ** (8 - _BITS)).floor() * 2 ** (8 - _BITS),
    lambda x, sign: torch.where(x >= _SOLARIZE, 255 - x, x),
    _auto_contrast,
    _equalized,
)
"""Identity, shears, shifts, rotation, brightness, colour, contrast, sharpness, posterise, solarise, auto-contrast,
equalise."""


def changed(pixels: Tensor, drawn: Tensor) -> Tensor:
    """Apply the drawn operations.

    Args:
        pixels: Pictures [n, C, H, W] of 0..255.
        drawn: For each operation its number and whether its sign is negative, int64 [n, 2 * OPERATIONS].

    Returns:
        The changed pictures [n, C, H, W].

    """
    pixels = pixels.clone()
    for number, negative in zip(drawn[:, ::2].unbind(1), drawn[:, 1::2].unbind(1), strict=True):
        sign = 1 - 2 * negative.to(pixels.dtype)
        for which in number.unique().tolist():
            rows = torch.nonzero(number == which)[:, 0]
            pixels[rows] = CHANGES[which](pixels[rows], sign[rows]).clamp(0, 255).floor()
    return pixels
