"""Figures whose words are drawn as they are written."""

from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


class LiteralFigure(Figure):
    """A figure that takes no text for a formula.

    Matplotlib reads what stands between two dollar signs as one. Names of data, classes, clients and settings may have
    such signs.
    """

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, facecolor="white", **keys)
        FigureCanvasAgg(self)

    def draw(self, renderer: Any) -> None:
        """Draw all texts literally, those of ticks among them, which matplotlib makes only now."""
        with matplotlib.rc_context({"text.parse_math": False}):
            for text in self.findobj(Text):
                text.set_parse_math(False)  # type: ignore[attr-defined]
            super().draw(renderer)
