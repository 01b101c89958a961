"""Values whose axes are another way round than their array's shape says."""

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import shape_text
from fedscale_ext.data.registry import KnownDataSet

_LOOKED_AT = 200  # samples
_ROUGH, _SMOOTH = 0.7, 0.4  # noise has 1; measured series and pictures have 0.1 to 0.3


def transposed(x: np.ndarray, where: str, entry: KnownDataSet) -> np.ndarray:
    """Read the values of each sample in the order [W, H], and return them as [N, H, W] of the data set.

    Raises:
        UserError: If the array has not as many values a sample as the data set.

    """
    _, height, width = entry.shape
    values = x[0].size if len(x) else height * width
    if x.ndim < 2 or values != height * width:
        raise UserError(f"{where} has {values} values a sample, and {entry.name} {shape_text(entry.shape)}: "
                        "--transposed cannot turn them")  # fmt: skip
    return x.reshape(len(x), width, height).swapaxes(1, 2)


def order_note(x: np.ndarray, where: str) -> str | None:
    """Return a sentence if neighbouring values would resemble each other only in the other order of axes.

    An array [N, W, H] that was reshaped to [N, H, W], instead of transposed, looks like noise along both axes.

    Args:
        x: Values [N, 1, H, W].
        where: What to call the array.

    """
    samples = x[:_LOOKED_AT, 0].astype(np.float64)
    count, height, width = samples.shape
    if min(height, width) < 2 or height == width or not samples.std() > 0:
        return None
    here = min(_roughness(samples, axis) for axis in (1, 2))
    other = _roughness(samples.reshape(count, width, height), 1)
    if here < _ROUGH or other > _SMOOTH:
        return None
    array = where.partition(" of ")[0]
    return (
        f"neighbouring values of {array} hardly resemble each other, but do if each sample is read as "
        f"{width}x{height}: it may have been reshaped where it had to be transposed; --transposed reads an npz file "
        "that way"
    )


def _roughness(x: np.ndarray, axis: int) -> float:
    """Mean difference of neighbours along an axis, as a share of what it is in noise of the same spread."""
    return float(np.abs(np.diff(x, axis=axis)).mean() / (x.std() * 2.0 / np.sqrt(np.pi)))
