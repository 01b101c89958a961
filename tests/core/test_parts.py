"""Shares of numbers are whole where they should be."""

from math import ceil, floor

import numpy as np
import pytest

from fedscale_ext.core.local_steps import hold_out, trained_on
from fedscale_ext.core.parts import part_of


@pytest.mark.parametrize("hundredths", range(1, 101))
def test_whole_parts_are_whole_and_others_stay(hundredths: int) -> None:
    share = hundredths / 100
    for number in [*range(1, 300), 12_345, 1_000_000]:
        exact = hundredths * number
        part = part_of(share, number)
        assert (floor(part), ceil(part)) == (exact // 100, -(-exact // 100))
        if exact % 100:
            assert part == share * number


@pytest.mark.parametrize(("share", "samples", "held"), [(0.07, 100, 7), (0.14, 50, 7), (0.28, 25, 7), (0.1, 25, 3)])
def test_a_validation_part_is_as_large_as_its_share(share: float, samples: int, held: int) -> None:
    training, validation = hold_out(samples, share, 1, 2)
    assert (len(validation), len(training)) == (held, trained_on(samples, share)) == (held, samples - held)
    assert np.array_equal(np.sort(np.concatenate([training, validation])), np.arange(samples))
