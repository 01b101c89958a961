"""The site's navigation leads to pages, and links to files that are no pages become text."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_navigation_leads_to_pages_and_has_each_page_of_the_documentation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = set(leaves(nav))
    assert not [page for page in named if not (ROOT / page).is_file()]
    assert {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")} <= named


def leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(each)


def test_a_link_to_a_module_becomes_its_text_and_others_stay(hooks: ModuleType) -> None:
    source = ROOT / "docs" / "methods" / "index.md"
    text = (
        "[`fedavg`](../../fedscale_ext/methods/averaging/fedavg.py) [claims](../../evals/claims.md#f2) [there](#top) "
        "[web](https://example.org)\n```text\n[code](../setup.py)\n```\n"
    )
    assert hooks.with_page_links(text, source) == text.replace(
        "[`fedavg`](../../fedscale_ext/methods/averaging/fedavg.py)", "`fedavg`"
    )
