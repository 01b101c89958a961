"""Digits at random places of an empty frame: a network has to find them first, and a linear model cannot."""

from pathlib import Path

import numpy as np

from fedscale_ext.core.streams import stream

FRAME = 22
"""Pixels of a side of a moved picture."""
_SAMPLES = 24_000
_SIDE = 14  # of a digit, whose own picture has 28


def write_moved(source: Path, out: Path) -> None:
    """Write digits at half their size, each at a random place of a frame, into an npz file.

    Which digits, and their places, are the same each time.

    Args:
        source: npz file of ``x_train`` and ``x_test`` (uint8 [samples, 28, 28]), ``y_train`` and ``y_test``.
        out: The file; ``x`` is uint8 [24,000, 22, 22], ``y`` the labels.

    """
    with np.load(source) as arrays:
        pictures = np.concatenate([arrays["x_train"], arrays["x_test"]])
        labels = np.concatenate([arrays["y_train"], arrays["y_test"]])
    draws = stream("benchmark", "moved")
    chosen = draws.permutation(len(pictures))[:_SAMPLES]
    small = pictures[chosen].reshape(-1, _SIDE, 2, _SIDE, 2).mean((2, 4))
    corners = draws.integers(0, FRAME - _SIDE + 1, (len(small), 2))
    framed = np.zeros((len(small), FRAME, FRAME), np.uint8)
    for frame, (row, column), digit in zip(framed, corners, small, strict=True):
        frame[row : row + _SIDE, column : column + _SIDE] = np.rint(digit)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, x=framed, y=labels[chosen])
