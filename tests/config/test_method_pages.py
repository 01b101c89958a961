"""Hyperparameters in the methods' pages."""

import dataclasses
import re

import pytest

from fedscale_ext.config.method_pages import blocks, with_hyperparameters
from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.core.errors import UserError

PAGE = "before\n<!-- hyperparameters of {}: written by a script -->\nold\n<!-- end of hyperparameters -->\nafter\n"


def test_a_block_has_each_hyperparameter_and_the_rest_stays() -> None:
    page = with_hyperparameters(PAGE.format("fedprox"))
    assert page.startswith("before\n<!-- hyperparameters of fedprox") and page.endswith("hyperparameters -->\nafter\n")
    assert "- **`fedprox.mu`** · " in page and "old" not in page
    assert with_hyperparameters(page) == page


@pytest.mark.parametrize("name", method_names())
def test_each_hyperparameter_has_one_entry_with_values_default_and_meaning(name: str) -> None:
    page = with_hyperparameters(PAGE.format(name))
    entries = re.findall(r"^- \*\*`(\S+)`\*\* · (.+) · default `(.*)`<br>\n  (\S.*\.)$", page, re.M)
    fields = dataclasses.fields(method_class(name).Params)  # type: ignore[attr-defined]
    assert [entry[0] for entry in entries] == [f"{name}.{field.name}" for field in fields]
    if name == "heterofl":
        (rates,) = [entry[1:3] for entry in entries if entry[0] == "heterofl.rates"]
        assert rates == ("list of numbers", "[1.0, 0.5, 0.25, 0.125, 0.0625]")


def test_blocks_are_told_apart() -> None:
    page = PAGE.format("fedprox") + PAGE.format("qfedavg")
    assert blocks(page) == ["fedprox", "qfedavg"]
    assert with_hyperparameters(page).index("`fedprox.mu`") < with_hyperparameters(page).index("`qfedavg.q`")


def test_a_block_of_an_unknown_method_is_refused() -> None:
    with pytest.raises(UserError, match="fedporx"):
        with_hyperparameters(PAGE.format("fedporx"))


def test_what_methods_share_stands_once_and_not_in_their_own_blocks() -> None:
    shared = PAGE.replace("of {}", "shared by lgfedavg fedproto")
    page = with_hyperparameters(shared + PAGE.format("lgfedavg") + PAGE.format("fedproto") + PAGE.format("fd"))
    entries = re.findall(r"^- \*\*`(\S+)`\*\*", page, re.M)
    common = [f"METHOD.{name}" for name in ("types", "groups", "ranges", "representation")]
    assert entries == [
        *common,
        "fedproto.weight",
        "fedproto.predict",
        "fd.types",
        "fd.groups",
        "fd.ranges",
        "fd.weight",
    ]
    assert page.count("None of its own.") == 1
    assert with_hyperparameters(page) == page
    assert blocks(page) == ["lgfedavg", "fedproto", "fd"]


def test_a_second_shared_block_adds_what_the_first_lacks() -> None:
    first, second = (PAGE.replace("of {}", f"shared by {names}") for names in ("fd lgfedavg fedgh", "lgfedavg fedgh"))
    page = with_hyperparameters(first + second)
    entries = re.findall(r"^- \*\*`METHOD\.(\S+)`\*\*", page, re.M)
    assert entries == ["types", "groups", "ranges", "representation"]


def test_a_hyperparameter_with_another_default_is_not_shared() -> None:
    page = with_hyperparameters(PAGE.replace("of {}", "shared by fedproto fedtgp"))
    assert "`METHOD.predict`" in page and "`METHOD.weight`" not in page
