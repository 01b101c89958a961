"""The pages for those who add something are true: what they tell to do is done, and works."""

from pathlib import Path

import pytest
from pages import ROOT, Reader


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(tmp_path, monkeypatch)


def test_adding_a_method(reader: Reader) -> None:
    reader.follow(ROOT / "docs" / "adding-a-method.md")
    assert "half: " in reader.said and "global: " in reader.said
