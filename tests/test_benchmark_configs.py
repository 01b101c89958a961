"""The shipped files: what `fedscale config show` writes, so that they stay equal to the presets."""

import re
from pathlib import Path

import pytest

from fedscale_ext.config.job_config import load_config, shipped_configs
from fedscale_ext.config.presets import render

FOLDER = Path(__file__).resolve().parents[1] / "benchmark_configs"
# the four systems on their papers' data
FILES = {
    **{f"fedtrans_{data}": ("fedtrans", data) for data in ("femnist", "cifar10", "speech", "openimage")},
    **{f"hypemefed_{data}": ("hypemefed", data) for data in ("svhn", "stl10", "fashionmnist", "cifar100")},
    "hypemefed_unimib": ("hypemefed", "unimib_shar"),
    **{f"fedoras_{data}": ("fedoras", f"{data}_fedoras") for data in ("cifar10", "cifar100", "speech")},
    "fedoras_shakespeare": ("fedoras", "shakespeare"),
    **{f"moss_{data}": ("moss", f"{data}_moss") for data in ("cifar10", "speech")},
}


def text_of(name: str) -> str:
    """What the file holds: the presets' configuration, by the file's own name."""
    return re.sub(r"job_name: \w+", f"job_name: {name}", render(*FILES[name]))


def test_the_files_are_those_of_the_four_systems() -> None:
    assert {path.stem for path in FOLDER.glob("*.yml")} == set(shipped_configs()) == {*FILES, "quickstart"}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_what_the_presets_compose(name: str) -> None:
    assert (FOLDER / f"{name}.yml").read_text(encoding="utf-8") == text_of(name)


@pytest.mark.parametrize("name", [*FILES, "quickstart"])
def test_the_entries_of_a_file_exist(name: str) -> None:
    config = load_config(name)
    assert config.fedscale.job_name == name
    assert all(path.is_file() for path in config.entry_paths())


def test_the_page_links_each_file() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\w+)\.yml\)", page)) == {*FILES, "quickstart"}
