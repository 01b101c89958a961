"""Data sets have one spelling; FedScale's is understood wherever a name is given."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.presets import compose
from fedscale_ext.core.data_names import data_set_name
from fedscale_ext.data.importing.importers import NpzOptions, import_npz
from fedscale_ext.data.layout.files import describe
from fedscale_ext.data.registry import KNOWN, canonical, known
from fedscale_ext.report.compare.published import TABLE2

FEDSCALES = {"Mnist": "mnist", "openImg": "openimage", "google_speech": "speech"}


@pytest.mark.parametrize(("theirs", "ours"), FEDSCALES.items())
def test_fedscales_spelling_means_our_data_set(theirs: str, ours: str) -> None:
    assert data_set_name(theirs) == ours and data_set_name(ours) == ours
    assert known(theirs) is known(ours) is known(ours.upper()) is not None
    assert canonical(theirs) == canonical(ours.upper()) == ours


def test_names_are_in_lower_case_and_no_alias() -> None:
    assert all(entry.name == entry.name.lower() == data_set_name(entry.name) for entry in KNOWN)
    assert set(TABLE2) <= {entry.name for entry in KNOWN}


def test_a_name_of_ones_own_stays_as_it_is() -> None:
    assert data_set_name("Animals") == canonical("Animals") == "Animals" and known("Animals") is None


def test_a_configuration_holds_our_spelling() -> None:
    assert make_config({}, {"data_set": "google_speech"}).fedscale.data_set == "speech"
    assert compose("heterofl", "openImg") == compose("heterofl", "openimage")


def test_folders_in_the_former_spelling_are_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=rng.integers(0, 255, (8, 28, 28), np.uint8), y=np.arange(8), client=np.arange(8) % 2)
    written = import_npz(tmp_path / "a.npz", tmp_path / "out", "Mnist", NpzOptions())
    assert written.data_set == "mnist"
    description = tmp_path / "out" / "dataset.json"
    content = json.loads(description.read_text())
    assert content["data_set"] == "mnist"
    description.write_text(json.dumps({**content, "data_set": "Mnist"}))
    assert describe(tmp_path / "out", "mnist").data_set == describe(tmp_path / "out", "Mnist").data_set == "mnist"
