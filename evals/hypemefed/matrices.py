"""Pictures of a layer's weights as a matrix, with those that stand for them, and their differences."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from evals.paper.panels import grid, save
from fedscale_ext.methods.hypemefed.factorisation import to_matrix

if TYPE_CHECKING:
    from evals.paper.experiment import Experiment

_CORNER = 48  # rows and columns that are shown: each entry a visible square


def draw(experiment: "Experiment", path: Path, true: torch.Tensor, guesses: Mapping[str, torch.Tensor]) -> None:
    """The corner of a convolution [O, I, kh, kw] as the matrix that components are taken from, each guess of it beside
    it, and below that the guess less the layer, all in one range of colours."""
    trained = _corner(true)
    figure, (above, below) = grid(experiment, 2, 1 + len(guesses), 2.6 * (1 + len(guesses)))
    edge = float(np.quantile(np.abs(trained), 0.99))
    image = above[0].imshow(trained, cmap="coolwarm", vmin=-edge, vmax=edge)
    above[0].set_title("trained", fontsize=9)
    below[0].set_axis_off()
    for (label, guess), top, bottom in zip(guesses.items(), above[1:], below[1:], strict=True):
        shown = _corner(guess)
        top.imshow(shown, cmap="coolwarm", vmin=-edge, vmax=edge)
        top.set_title(label, fontsize=9)
        bottom.imshow(shown - trained, cmap="coolwarm", vmin=-edge, vmax=edge)
        bottom.set_title(f"less trained: MAE {np.abs(to_array(guess) - to_array(true)).mean():.2g}", fontsize=9)
    for axis in (*above, *below):
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(image, ax=[*above, *below], shrink=0.6)
    save(figure, path)


def to_array(weight: torch.Tensor) -> np.ndarray:
    """The layer's matrix."""
    return to_matrix(weight).numpy()


def _corner(weight: torch.Tensor) -> np.ndarray:
    return to_array(weight)[:_CORNER, :_CORNER]
