"""The benchmark is found in a clone; elsewhere a sentence says where it is."""

from pathlib import Path

import pytest

from fedscale_ext.cli import checkout
from fedscale_ext.core.errors import UserError


def test_a_clone_has_the_benchmark() -> None:
    assert checkout.in_checkout() and "har" in checkout.harness("tasks").TASKS


def test_an_installed_package_says_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkout, "_ROOT", tmp_path)
    assert not checkout.in_checkout()
    with pytest.raises(UserError, match="clone it"):
        checkout.harness("tasks")
