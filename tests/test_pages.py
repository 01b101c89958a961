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
    options = reader.said.rpartition("halves.momentum")[2]  # of `fedscale methods options halves`
    assert "halves.smoothing" in options and "demo." not in options


def test_adding_a_model(reader: Reader) -> None:
    reader.follow(ROOT / "docs" / "adding-a-model.md")
    lines = dict(line.split(" ", 1) for line in reader.said.splitlines() if line.endswith("]"))
    assert len(lines["fedavg"].split(",")) == 1 and len(lines["heterofl"].split(",")) == 5


def test_several_machines(reader: Reader) -> None:
    reader.follow(ROOT / "docs" / "cluster.md")
    assert reader.said.count("kind: Job") == 2  # the aggregator's, and an indexed one of ten executors
    assert "completions: 10" in reader.said
    assert "kubectl create secret generic cluster --from-file" in reader.said


def test_adding_a_data_set(reader: Reader) -> None:
    reader.follow(ROOT / "docs" / "adding-a-dataset.md")
    reached = float(reader.said.split("accuracy of a client: ")[1].split()[0])
    assert reached > 0.6  # of three classes
    assert "20 clients" in reader.said
    assert "samples of 1x1x3" in reader.said  # the csv file's three columns
