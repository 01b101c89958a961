"""Groups: sizes that do not fit are refused, and levels and types are dealt by rank."""

import numpy as np
import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.groups import check_groups_fit, check_total, deal, ranked_levels


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ([3, 3], "and it holds 2 numbers"),
        ([7, -1, 0], "none of them negative"),
        ([3, 3, 3], r"the 6 clients with training data \(they add up to 9\)"),
        ([1, 2, 2], r"the 6 clients with training data \(they add up to 5\)"),
    ],
)
def test_sizes_that_do_not_fit_are_one_sentence(sizes: list[int], sentence: str) -> None:
    with pytest.raises(UserError, match=rf"x.groups is \[.* for each of 3 levels, .*{sentence}"):
        check_groups_fit("x.groups", sizes, 3, 6)


def test_of_clients_that_are_alike_the_first_are_on_the_smaller_level() -> None:
    assert ranked_levels(np.array([5.0, 5.0, 5.0, 1.0]), [2, 1, 1]).tolist() == [2, 1, 0, 2]


def test_types_are_dealt_by_their_macs_whatever_their_order() -> None:
    macs = np.array([20, 90, 5])
    assert deal(np.array([3.0, 1.0, 2.0, 4.0]), macs, [1, 1, 2]).tolist() == [0, 2, 2, 1]


def test_types_whose_groups_are_too_many_are_refused() -> None:
    check_total("x.groups", [3, 3], 6)
    with pytest.raises(UserError, match=r"x.groups is \[3, 4\], which adds up to 7; .* the 6 clients"):
        check_total("x.groups", [3, 4], 6)
