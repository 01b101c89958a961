"""Where methods are found: in other packages, and without the metadata of this one."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fedscale_ext import methods
from fedscale_ext.methods import method_class, method_names
from fedscale_ext.methods.fedavg import FedAvgAggregator
from fedscale_ext.methods.fedtrans.aggregator import FedTransAggregator
from fedscale_ext.runtime.aggregator import MultiModelAggregator


def registered(monkeypatch: pytest.MonkeyPatch, **places: str) -> None:
    points = [EntryPoint(name, value, methods.GROUP) for name, value in places.items()]
    monkeypatch.setattr(methods, "entry_points", lambda group: points if group == methods.GROUP else [])


def test_built_in_methods_are_found_without_the_packages_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch)
    assert method_names() == ["fedavg", "fedprox", "fedtrans", "fedyogi"]
    assert method_class("fedtrans") is FedTransAggregator
    for name in method_names():
        assert issubclass(method_class(name), MultiModelAggregator)


def test_another_packages_method_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, theirs="fedscale_ext.methods.fedavg:FedAvgAggregator")
    assert "theirs" in method_names()
    assert method_class("theirs") is FedAvgAggregator


def test_setup_registers_exactly_the_built_in_methods() -> None:
    text = Path(__file__).resolve().parents[2].joinpath("setup.py").read_text(encoding="utf-8")
    for name, place in methods._BUILT_IN.items():
        assert f'"{name}={place}"' in text
