"""The reference of the configuration: groups of keys, and an entry for each."""

import json
import os
import re
from collections import Counter

import pytest

from fedscale_ext.config.arguments import fedscale_actions
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.key_groups import FEDSCALE_MEANINGS, GROUPS
from fedscale_ext.config.keys import JobKeys
from fedscale_ext.config.reference import reference

from .test_meanings import long_sentences


@pytest.fixture(scope="module")
def page() -> str:
    return reference()


def test_each_key_of_a_job_is_in_one_group() -> None:
    grouped = Counter(key for group in GROUPS for key in group.keys)
    assert grouped == Counter([*JobKeys.model_fields, *FEDSCALE_MEANINGS])
    assert set(FEDSCALE_MEANINGS) <= set(fedscale_actions())


def test_keys_have_meanings_in_short_sentences() -> None:
    texts = {key: field.description or "" for key, field in JobKeys.model_fields.items()} | FEDSCALE_MEANINGS
    for key, meaning in texts.items():
        assert meaning.endswith(".") and (meaning[0].isupper() or meaning[0] == "`"), key
        assert not long_sentences(meaning), key


def test_each_key_has_one_entry_with_values_default_and_meaning(page: str) -> None:
    entries = re.findall(r"^- \*\*`(\S+)`\*\* · (.+) · default `(.*)`<br>\n  (\S.*\.)$", page, re.M)
    assert [entry[0] for entry in entries] == [key for group in GROUPS for key in group.keys]
    values = {entry[0]: entry[1:3] for entry in entries}
    assert values["deadline_s"] == ("number above 0 or null", "null")
    assert values["use_cuda"] == ("true, false", "true")


def test_defaults_of_fedscales_keys_are_those_of_a_job(page: str) -> None:
    arguments = make_config({}, {}).fedscale
    for key in FEDSCALE_MEANINGS:
        entry = re.search(rf"^- \*\*`{key}`\*\* .* default `(.*)`<br>$", page, re.M)
        assert entry is not None, key
        value = getattr(arguments, key)
        written = json.dumps(value) if isinstance(value, bool | None) else str(value)
        assert os.path.expanduser(entry[1]) == written, key


def test_every_group_has_a_heading_that_the_list_of_keys_links_to(page: str) -> None:
    start = page.index("## All keys")
    titles = re.findall(r"^## (.+)$", page[start:], re.M)[1:]
    linked = re.findall(r"\]\(#([\w-]+)\)", page[start : page.index(f"## {titles[0]}")])
    assert linked == [title.replace("`", "").lower().replace(" ", "-") for title in titles]
    assert titles == [group.title for group in GROUPS]


def test_hyperparameters_are_on_the_methods_pages_alone(page: str) -> None:
    assert "(methods/index.md)" in page and "**`fedprox.mu`**" not in page


def test_no_cell_of_a_table_has_more_than_twelve_words(page: str) -> None:
    cells = [cell for line in page.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    assert all(len(cell.split()) <= 12 for cell in cells)
