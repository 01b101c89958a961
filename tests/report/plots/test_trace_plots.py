"""The picture of traces."""

from itertools import pairwise

import numpy as np
import pytest

from fedscale_ext.population.traces.columns import CapacityTrace
from fedscale_ext.report.plots.trace_plots import draw


@pytest.mark.parametrize("kbps", [(2200, 8000), (1000, 40_000), (1000, 200_000), (5, 5)])
def test_labels_of_a_logarithmic_axis_stand_apart(kbps: tuple[float, float]) -> None:
    communication = np.geomspace(*kbps, 30)
    figure = draw(CapacityTrace(np.arange(1, 31), np.linspace(15.0, 150.0, 30), communication), None)
    figure.canvas.draw()
    axis = figure.axes[1].xaxis
    left, right = figure.axes[1].get_xlim()
    shown = [
        label.get_window_extent()
        for tick, label in zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
        if left <= tick <= right
    ]
    assert len(shown) >= 1 and not any(text.get_text() for text in axis.get_minorticklabels())
    assert all(before.x1 < after.x0 for before, after in pairwise(shown))
