"""Hyperparameters in the methods' pages."""

import pytest

from fedscale_ext.config.method_pages import blocks, with_hyperparameters
from fedscale_ext.core.errors import UserError

PAGE = "before\n<!-- hyperparameters of {}: written by a script -->\nold\n<!-- end of hyperparameters -->\nafter\n"


def test_a_block_has_each_hyperparameter_and_the_rest_stays() -> None:
    page = with_hyperparameters(PAGE.format("fedprox"))
    assert page.startswith("before\n<!-- hyperparameters of fedprox") and page.endswith("hyperparameters -->\nafter\n")
    assert "- **`fedprox.mu`** · " in page and "old" not in page
    assert with_hyperparameters(page) == page


def test_blocks_are_told_apart() -> None:
    page = PAGE.format("fedprox") + PAGE.format("qfedavg")
    assert blocks(page) == ["fedprox", "qfedavg"]
    assert with_hyperparameters(page).index("`fedprox.mu`") < with_hyperparameters(page).index("`qfedavg.q`")


def test_a_block_of_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match="fedporx"):
        with_hyperparameters(PAGE.format("fedporx"))
