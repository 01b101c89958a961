"""What the second tier names exists: a renamed test would come back to the first one without a word."""

from pathlib import Path

import pytest
from tiers import SECOND_TIER

HERE = Path(__file__).parent


@pytest.mark.parametrize("entry", SECOND_TIER)
def test_an_entry_of_the_second_tier_is_a_folder_a_file_or_a_test(entry: str) -> None:
    path, _, name = entry.partition("::")
    assert (HERE / path).exists()
    assert not name or f"def {name}(" in (HERE / path).read_text(encoding="utf-8")
