"""Samples to predict: values keep the order of their axes."""

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.data.inputs import read_inputs

WINDOWS = np.arange(2 * 9 * 128, dtype=np.float32).reshape(2, 9, 128) / 4096


@pytest.mark.parametrize("shape", [(1, 9, 128), (9, 8, 16)])
def test_values_are_read_in_the_order_of_their_data_set_or_their_job(shape: tuple[int, int, int]) -> None:
    for source in (WINDOWS, WINDOWS.reshape(2, 9, 8, 16)) if shape == (9, 8, 16) else (WINDOWS, WINDOWS[:, None]):
        samples = [sample for _, sample in read_inputs(source, "uci_har", shape)]
        assert np.array_equal(samples, WINDOWS.astype(np.float16).reshape(2, *shape))


@pytest.mark.parametrize("shape", [(1, 9, 128), (9, 8, 16)])
def test_transposed_values_are_refused(shape: tuple[int, int, int]) -> None:
    """They have as many values, and a model would answer all the same."""
    with pytest.raises(UserError, match=r"^samples of the shape 1x128x9 cannot be .*; are their axes in another order"):
        list(read_inputs(WINDOWS.transpose(0, 2, 1), "uci_har", shape))
