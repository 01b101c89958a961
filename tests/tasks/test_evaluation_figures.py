"""Logits of a test: batches of few sizes give what batches of any size give."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_job import tiny_data
from torch import Tensor, nn

from fedscale_ext.data.store import open_data_set
from fedscale_ext.tasks import evaluation_figures


class SeenSizes(nn.Module):
    """A linear model that notes the sizes of its batches."""

    def __init__(self, pixels: int) -> None:
        super().__init__()
        self.linear = nn.Linear(pixels, 3)
        self.sizes: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.sizes.append(len(x))
        logits: Tensor = self.linear(x.flatten(1))
        return logits


def test_batches_of_few_sizes_give_the_same_logits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data_set(tiny_data(tmp_path), "femnist")
    torch.manual_seed(0)
    model = SeenSizes(int(np.prod(data.input_shape)))
    cpu = torch.device("cpu")
    for count, whole, few in ((1, [1], [1]), (5, [5], [8]), (11, [8, 3], [8, 4]), (14, [8, 6], [8, 8])):
        rows = np.arange(count)[::-1].copy()
        model.sizes.clear()
        monkeypatch.setattr(evaluation_figures, "_FEW_SIZES", ())
        expected = evaluation_figures.outputs(model, data, rows, 8, cpu)
        assert model.sizes == whole
        model.sizes.clear()
        monkeypatch.setattr(evaluation_figures, "_FEW_SIZES", ("cpu",))
        torch.testing.assert_close(evaluation_figures.outputs(model, data, rows, 8, cpu), expected)
        assert model.sizes == few


def test_the_power_of_two_is_at_most_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = open_data_set(tiny_data(tmp_path), "femnist")
    model = SeenSizes(int(np.prod(data.input_shape)))
    monkeypatch.setattr(evaluation_figures, "_FEW_SIZES", ("cpu",))
    assert evaluation_figures.outputs(model, data, np.arange(16), 10, torch.device("cpu")).shape == (16, 3)
    assert model.sizes == [10, 8]
