"""Arrays of many samples, in any accepted order of axes, as pixels or values."""

from collections.abc import Sequence

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.shapes import check_shape
from fedscale_ext.data.decoding.sample_files import as_values
from fedscale_ext.data.formats.axes import order_note
from fedscale_ext.data.formats.source import as_bytes
from fedscale_ext.data.registry import KnownDataSet

_CHANNELS = (1, 3)


def arranged(
    x: np.ndarray, where: str, entry: KnownDataSet | None, sides: Sequence[int] | None, notes: list[str]
) -> np.ndarray:
    """Put samples into the order [N, C, H, W]: uint8 pixels, or float16 values where the data set has values.

    Args:
        x: [N, H, W], [N, H, W, C] or [N, C, H, W]; bytes, floats in 0..1, or numbers for a data set of values.
        where: What to call the array in sentences.
        entry: The data set, None for a kind of one's own.
        sides: Shape that pictures will be resized to, so that they may be larger than a model takes; None for none.
        notes: Gets a sentence where pixels are changed, and where pictures may have been meant in another order.

    Raises:
        UserError: If the array cannot be samples of the data set.

    """
    name = where.partition(" of ")[0]
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[-1] in _CHANNELS:
        if x.shape[1] not in _CHANNELS:
            x = x.transpose(0, 3, 1, 2)
        elif not (entry and entry.values) and (either := _either_order_note(x, name)) not in notes:
            notes.append(either)
    if x.ndim != 4:
        raise UserError(f"{where} has shape {x.shape}: it must be images [N, H, W(, C)]")
    if not (entry and entry.values) and (x.shape[1] not in _CHANNELS or 0 in x.shape[2:]):
        raise UserError(
            f"{where} has shape {x.shape}: pictures have 1 or 3 channels, as the first or last axis, and no empty side"
        )
    if sides is None:
        try:
            check_shape(x.shape[1:])
        except UserError as error:
            raise UserError(f"{where}: {error}; --shape resizes pictures") from error
    if entry and entry.values:
        values = as_values(x, where)
        note = None if entry.text or x.shape[1] != 1 else order_note(values, where)
        if note is not None and note not in notes:
            notes.append(note)
        return values
    note = f"the floats in 0..1 of {name} became bytes in 0..255"
    if x.dtype.kind == "f" and note not in notes:
        notes.append(note)
    return as_bytes(x, where)


def _either_order_note(x: np.ndarray, name: str) -> str:
    """Say that pictures whose first or last axis may be the channels, [N, C, H, W], were read as channels first."""
    sizes = " x ".join(map(str, x.shape[1:]))
    channels, height, width = x.shape[1:]
    return (
        f"samples of {name} are {sizes}, read as channels x height x width ({channels} of {height} x {width}): if the "
        "channels come last, save it anew as x.transpose(0, 3, 1, 2)"
    )
